package resourceversion_test

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	upstream "k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/resourceversion"
)

var long = "1" + strings.Repeat("0", 1000)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"1", "1", 0},
		{"1", "2", -1},
		{"9", "10", -1},
		{"100", "99", +1},
		{"18446744073709551615", "18446744073709551616", -1},
		{"340282366920938463463374607431768211455", "340282366920938463463374607431768211456", -1},
		{long, long + "0", -1},
		{long, long, 0},
		{long[:1000] + "1", long, +1},
	} {
		got, err := resourceversion.Compare(c.a, c.b)
		if got != c.want || err != nil {
			t.Errorf("Compare(%s, %s) = %d, %v, want %d", c.a, c.b, got, err, c.want)
		}
		if got, err := resourceversion.Compare(c.b, c.a); got != -c.want || err != nil {
			t.Errorf("Compare(%s, %s) = %d, %v, want %d", c.b, c.a, got, err, -c.want)
		}
		less, err := resourceversion.Less(c.a, c.b)
		if less != (c.want < 0) || err != nil {
			t.Errorf("Less(%s, %s) = %v, %v", c.a, c.b, less, err)
		}
		newer := c.a
		if c.want < 0 {
			newer = c.b
		}
		if got, err := resourceversion.Max(c.a, c.b); got != newer || err != nil {
			t.Errorf("Max(%s, %s) = %s, %v, want %s", c.a, c.b, got, err, newer)
		}
	}
}

// TestInvalid gives each function an invalid version, on either side. It must return an
// error that names the problem, and never an order.
func TestInvalid(t *testing.T) {
	for _, c := range []struct{ text, names string }{
		{"", "it is empty"},
		{"0", "0 asks for any state"},
		{"00", "begins with a zero"},
		{"007", "begins with a zero"},
		{"-1", "sign '-' at byte 0"},
		{"+1", "sign '+' at byte 0"},
		{" 1", "space ' ' at byte 0"},
		{"1\n", `space '\n' at byte 1`},
		{"1e3", "'e' at byte 1"},
		{"0x1", "'x' at byte 1"},
		{"1.5", "'.' at byte 1"},
		{"1_000", "'_' at byte 1"},
		{"\u0661", "at byte 0 is no decimal digit"}, // a digit of another script
		{"1\x00", "at byte 1 is no decimal digit"},
		{"1\xff", "at byte 1 is no decimal digit"},
		{"Zm9vLWJhcg==", "'Z' at byte 0"},
		{strings.Repeat("a", 1<<20), "..."},
	} {
		if resourceversion.Valid(c.text) {
			t.Errorf("Valid(%q)", c.text)
		}
		for _, pair := range [][2]string{{c.text, "5"}, {"5", c.text}, {c.text, c.text}} {
			got, err := resourceversion.Compare(pair[0], pair[1])
			invalid, ok := errors.AsType[*resourceversion.InvalidError](err)
			if !ok || got != 0 || invalid.Text != c.text || !strings.Contains(err.Error(), c.names) || len(err.Error()) > 400 {
				t.Errorf("Compare(%.80q, %.80q) = %d, %.400v, want an error that says %q", pair[0], pair[1], got, err, c.names)
			}
			if less, err := resourceversion.Less(pair[0], pair[1]); less || err == nil {
				t.Errorf("Less(%.80q, %.80q) = %v, %v", pair[0], pair[1], less, err)
			}
			if newer, err := resourceversion.Max(pair[0], pair[1]); newer != "" || err == nil {
				t.Errorf("Max(%.80q, %.80q) = %.80q, %v", pair[0], pair[1], newer, err)
			}
		}
	}
}

// TestCompareAsIntegers holds random versions against big integers.
func TestCompareAsIntegers(t *testing.T) {
	r := testrand.New(t)
	for range 20_000 {
		a := digits(r)
		b := digits(r)
		if r.IntN(4) == 0 {
			b = a[:len(a)-1] + string(rune('0'+r.IntN(10)))
		}
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		got, err := resourceversion.Compare(a, b)
		if b == "0" {
			if err == nil {
				t.Fatalf("Compare(%s, %s) = %d", a, b, got)
			}
			continue
		}
		if err != nil || got != x.Cmp(y) {
			t.Fatalf("Compare(%s, %s) = %d, %v, want %d", a, b, got, err, x.Cmp(y))
		}
	}
}

func digits(r *rand.Rand) string {
	text := []byte{byte('1' + r.IntN(9))}
	for range r.IntN(45) {
		text = append(text, byte('0'+r.IntN(10)))
	}
	return string(text)
}

// FuzzCompare holds Compare against upstream's: the same order, and errors for the
// same texts.
func FuzzCompare(f *testing.F) {
	for _, a := range []string{"", "0", "1", "10", "01", "-1", " 1", "1 ", "abc", "9999999999", "\u0661", "1\xff", long} {
		for _, b := range []string{"1", "2", "10", a} {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := resourceversion.Compare(a, b)
		want, wantErr := upstream.CompareResourceVersion(a, b)
		if got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("Compare(%q, %q) = %d, %v; upstream: %d, %v", a, b, got, err, want, wantErr)
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		_, errOfA := upstream.CompareResourceVersion(a, a)
		if valid := resourceversion.Valid(a); valid != (errOfA == nil) {
			t.Errorf("Valid(%q) = %v; upstream: %v", a, valid, errOfA)
		}
	})
}

func TestCompareAllocates(t *testing.T) {
	for _, c := range compared {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := resourceversion.Compare(c.a, c.b); err != nil {
				t.Fatal(err)
			}
			if _, err := resourceversion.Max(c.a, c.b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

var compared = []struct{ name, a, b string }{
	{"short", "12345678", "12345679"},
	{"lengths", "9999999", "10000000"},
	{"128bit", "340282366920938463463374607431768211454", "340282366920938463463374607431768211455"},
	{"1000digits", long, long[:1000] + "1"},
}

// BenchmarkCompare measures this package and upstream's in one run.
func BenchmarkCompare(b *testing.B) {
	for _, c := range compared {
		for _, f := range []struct {
			name    string
			compare func(a, b string) (int, error)
		}{
			{"tidemark", resourceversion.Compare},
			{"upstream", upstream.CompareResourceVersion},
		} {
			b.Run(c.name+"/"+f.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if n, err := f.compare(c.a, c.b); n != -1 || err != nil {
						b.Fatal(n, err)
					}
				}
			})
		}
	}
}
