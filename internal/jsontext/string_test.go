package jsontext_test

import (
	"encoding/json"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", `"\/`, "<&>", "\x00\b\f\n\r\t\x1f\x7f", "ä€😀", "\u2028\u2029", "\xff\xc3(", "�"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := jsontext.AppendString([]byte("x"), s); string(got) != "x"+string(want) {
			t.Errorf("%q: got %s, want x%s", s, got, want)
		}
	})
}
