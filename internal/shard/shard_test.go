package shard_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/shard"
)

const (
	low  = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	high = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
	in   = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')"
)

func TestParse(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{low, low},
		{high + " || " + low, high + " || " + low},
		{in, in},
		{"(" + low + ")", low},
		{"((" + low + ") || " + high + ")", low + " || " + high},
		{"  shardRange ( object.metadata.uid,\"0x0000000000000000\"\n,'0x8000000000000000' )\t", low},
	} {
		s, err := shard.Parse(row.text)
		if err != nil || s.String() != row.want || s.ByNamespace() != strings.Contains(row.want, "namespace") {
			t.Errorf("%s: %v %v", row.text, s, err)
		}
	}
	with := func(start, end string) string { return "shardRange(object.metadata.uid, " + start + ", " + end + ")" }
	for _, row := range []struct{ text, want string }{
		{" ", "empty shard selector is not allowed; omit the parameter for unfiltered lists"},
		{"x", "unexpected end: want shardRange("},
		{"shardRange", "unexpected end"},
		{"shardRange()", `unexpected ")" at position 11`},
		{"shardRange(object.metadata.uid)", `unexpected ")" at`},
		{strings.Replace(low, "uid", "name", 1), `unsupported field path "object.metadata.name"; supported: object.metadata.uid, object.metadata.namespace`},
		{with("'0x0'", "'0x8000000000000000'"), `hexStart must be a 0x-prefixed 16-digit hex value, got "0x0" (did you mean "0x0000000000000000"?)`},
		{with("'0x8000000000000000'", "'0x8000000000000000'"), "shard range start 0x8000000000000000 must be less than end 0x8000000000000000"},
		{with("'0x10000000000000000'", "'0x8000000000000000'"), "must be less than end"},
		{with("'0x8000000000000000'", "'0x20000000000000000'"), `hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got "0x20000000000000000"`},
		{with("1", "'0x8000000000000000'"), "hexStart must be a string literal"},
		{with("'8'", "'0x8000000000000000'"), `hexStart must have '0x' prefix, got "8"`},
		{with("'0x'", "'0x8000000000000000'"), "hexStart: hex value is required after '0x'"},
		{with("'0xA000000000000000'", "'0x8000000000000000'"), `hexStart: invalid hex character "A" in "0xA000000000000000"`},
		{with("'0x"+strings.Repeat("0", 1000)+"'", "'0x8000000000000000'"), "hexStart: hex value too long (1000 chars, max 17): \"0000000000000000000000000000000000000000\""},
		{with("'0x0000000000000000", "'0x8000000000000000'"), "hexStart: hex value too long"},
		{low + " && " + high, `unexpected "&& shardRange(object" at position 76`},
		{low + " || " + in, `all shard ranges must use the same field, got "object.metadata.uid" and "object.metadata.namespace"`},
		{low + " ||", "unexpected end"},
		{low + ")", `unexpected ")"`},
		{"(" + low, "unexpected end"},
		{"has(object.metadata)", `unsupported function "has"; only shardRange() and || are allowed`},
		{"[" + low + "]", `unexpected "[shardRange`},
		{low + low, `unexpected "shardRange(`},
		{"shardRange(.uid, 'a", "unsupported field path"},
	} {
		if _, err := shard.Parse(row.text); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", row.text, err, row.want)
		}
	}
}

// TestHas compares random selectors with the definition.
func TestHas(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		var parts []string
		var bounds [][2]uint64
		for range 1 + random.IntN(4) {
			a, b := random.Uint64()>>60<<60, random.Uint64()>>60<<60
			if a > b {
				a, b = b, a
			}
			end := fmt.Sprintf("0x%016x", b)
			if a == b {
				b, end = 0, "0x10000000000000000" // to the end
			}
			parts = append(parts, fmt.Sprintf("shardRange(object.metadata.uid, '0x%016x', '%s')", a, end))
			bounds = append(bounds, [2]uint64{a, b - 1})
		}
		s, err := shard.Parse(strings.Join(parts, "||"))
		if err != nil {
			t.Fatal(err)
		}
		value := fmt.Sprint(random.Uint64())
		h := fnv.New64a()
		h.Write([]byte(value))
		want := false
		for _, b := range bounds {
			want = want || h.Sum64() >= b[0] && h.Sum64() <= b[1]
		}
		if got := s.Has(value); got != want {
			t.Errorf("%s has %s (%x): %t, want %t", s, value, h.Sum64(), got, want)
		}
	}
}

func TestNoNamespace(t *testing.T) {
	s, err := shard.Parse("shardRange(object.metadata.namespace, '0xcbf29ce484222325', '0xcbf29ce484222326')")
	if err != nil || !s.Has("") || s.Has("a") {
		t.Errorf("%v: the hash of nothing is the offset", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{low, high + "||" + low, "((" + in + "))", "shardRange('", "x||y"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := shard.Parse(text)
		if err != nil {
			return
		}
		again, err := shard.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q became %q: %v", text, s, err)
		}
		s.Has("a")
	})
}
