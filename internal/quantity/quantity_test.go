package quantity_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidemark-dev/tidemark/internal/quantity"
)

func TestParse(t *testing.T) {
	for _, text := range []string{
		"0", "1", "-1", "+1", "100m", "1.5Gi", "2Ei", "1E", "1e3", "1e-9", "-1E+18", "9223372036854775807", "1e128", "1e-128", ".5", "5.",
		strings.Repeat("9", quantity.MaxBytes),
	} {
		got, err := quantity.Parse(text)
		if want, wrong := resource.ParseQuantity(text); err != nil || wrong != nil || got.Cmp(want) != 0 || got.Format != want.Format {
			t.Errorf("%s: got %v, %v, want %v, %v", text, &got, err, &want, wrong)
		}
		if bound := quantity.Bound(text); bound != text {
			t.Errorf("%s: bounded to %s", text, bound)
		}
	}
	for text, want := range map[string]string{
		"1e129":                                 "1e129",
		"1e-129":                                "1e-129",
		"1e1000000000":                          "9223372036854775807",
		"-1e1000000000":                         "-9223372036854775807",
		"1e-1000000000":                         "1n",
		" -1E-1000000000 ":                      "-1n",
		"1e00000000000000000000000000000000999": "9223372036854775807",
		"1e-99999999999999999999999999999999":   "1n",
		strings.Repeat("9", 1<<20):              "9223372036854775807",
	} {
		if _, err := quantity.Parse(text); !errors.Is(err, quantity.ErrTooLarge) {
			t.Errorf("%.40s: got %v", text, err)
		}
		if got := quantity.Bound(text); got != want {
			t.Errorf("%.40s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "e", "1e", "1e5x", "1ex", "x"} {
		if _, err := quantity.Parse(text); err == nil || errors.Is(err, quantity.ErrTooLarge) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
