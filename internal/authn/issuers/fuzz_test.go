package issuers

import (
	"os"
	"strings"
	"testing"
)

// FuzzConfiguration checks that no text causes a panic, and that a valid one has rules for each
// issuer.
func FuzzConfiguration(f *testing.F) {
	b, err := os.ReadFile("testdata/configurations.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, one := range strings.Split(string(b), "\n== ")[1:] {
		_, rest, _ := strings.Cut(one, " ==\n")
		text, _, _ := strings.Cut(rest, "-- want --\n")
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parse(b)
		if err != nil {
			return
		}
		rules, wrong := compile(c, []string{accounts})
		if len(wrong) > 0 {
			return
		}
		for n, r := range rules {
			if r == nil || c.JWT[n].Issuer.URL == "" || c.JWT[n].Issuer.URL == accounts || len(c.JWT[n].Issuer.Audiences) == 0 {
				t.Errorf("issuer %d of a valid configuration: %+v", n, c.JWT[n].Issuer)
			}
		}
	})
}
