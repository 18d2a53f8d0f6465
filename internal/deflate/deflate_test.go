package deflate_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/tidemark-dev/tidemark/internal/deflate"
)

// member puts parts together, every third of them stored.
func member(parts [][]byte) []byte {
	var m deflate.Member
	out := m.Begin(nil)
	for i, p := range parts {
		if i%3 == 1 {
			out = m.AddStored(out, p)
		} else {
			out = m.Add(out, deflate.Compress(p))
		}
	}
	return m.End(out)
}

// read decompresses by two decoders, which check sizes and sums.
func read(t testing.TB, data []byte) []byte {
	t.Helper()
	std, err := stdgzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	a, err := io.ReadAll(std)
	if err != nil {
		t.Fatal(err)
	}
	other, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(other)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Fatal("two decoders read different texts")
	}
	return a
}

func TestMember(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		return b
	}
	for _, parts := range [][][]byte{
		nil,
		{nil},
		{nil, nil, nil},
		{[]byte("a")},
		{[]byte("a"), []byte(","), []byte("b")},
		{bytes.Repeat([]byte("abc"), 100_000), random(200_000), random(100_000)},
		{random(1 << 16), random(1<<16 - 1), nil, random(1), random(1 << 17)},
	} {
		if got, want := read(t, member(parts)), bytes.Join(parts, nil); !bytes.Equal(got, want) {
			t.Errorf("%d parts: read %d bytes, want %d", len(parts), len(got), len(want))
		}
	}
}

// FuzzMember: whatever is cut anywhere, it is read as it was.
func FuzzMember(f *testing.F) {
	f.Add([]byte("hello, hello"), 3, 5)
	f.Add(bytes.Repeat([]byte{0}, 1000), 1, 999)
	f.Fuzz(func(t *testing.T, text []byte, i, j int) {
		n := len(text) + 1
		i, j = int(uint(i)%uint(n)), int(uint(j)%uint(n))
		i, j = min(i, j), max(i, j)
		if got := read(t, member([][]byte{text[:i], text[i:j], text[j:]})); !bytes.Equal(got, text) {
			t.Fatalf("read %q, want %q", got, text)
		}
	})
}

func BenchmarkMember(b *testing.B) {
	var fragments []*deflate.Fragment
	for i := range 300 {
		var text []byte
		for j := range 32 {
			text = fmt.Appendf(text, `{"metadata":{"name":"pod-%d-%d","namespace":"default","labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i:%d"}]}},`, i, j, j*7919)
		}
		fragments = append(fragments, deflate.Compress(text))
	}
	var out []byte
	for b.Loop() {
		var m deflate.Member
		out = m.Begin(out[:0])
		for _, f := range fragments {
			out = m.Add(out, f)
		}
		out = m.End(out)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(fragments)), "ns/fragment")
}
