package etcdvalue_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestRandomCustom checks that a custom resource is stored as encoding/json writes the decoded
// members, as in kube-apiserver, and decoded again to the same object.
func TestRandomCustom(t *testing.T) {
	r := testrand.New(t)
	var c etcdvalue.Codec
	for range 1000 {
		o, _ := randomJSON(r, 0).(map[string]any)
		if o == nil {
			o = map[string]any{}
		}
		o["kind"], o["apiVersion"] = randomText(r), "a.b/v1"
		o["metadata"] = map[string]any{"name": "n" + randomText(r), "labels": map[string]any{randomText(r): randomText(r), "l" + randomText(r): "x"}}
		want := encoded(t, o)
		d, err := c.Decode("pandas.a.b", want)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		got, err := c.Encode("pandas.a.b", d.JSON, d.RevisionAt)
		if err != nil {
			t.Fatalf("%s: %v", d.JSON, err)
		}
		// Numbers that JSON cannot distinguish become those of a decoder.
		if !bytes.Equal(got, want) && !bytes.Equal(got, recoded(t, want)) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

func encoded(t *testing.T, o any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func recoded(t *testing.T, text []byte) []byte {
	t.Helper()
	var o map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &o); err != nil {
		t.Fatal(err)
	}
	return encoded(t, o)
}

func randomText(r *rand.Rand) string {
	parts := []string{"", "a", "b", "B", "Z", "<&>", "\"", "\\", "/", "\n\t\b\f\r", "\x00\x1f\x7f", "\u2028\u2029", "é", "漢", "\ue000", "\uffee", "\ufffd", "\U0001f600", "\\ud800", "kind", "10", "2"}
	text := ""
	for range r.IntN(4) {
		text += parts[r.IntN(len(parts))]
	}
	return text
}

func randomJSON(r *rand.Rand, depth int) any {
	n := r.IntN(9)
	if depth == 0 {
		n = 8
	} else if depth > 4 {
		n = r.IntN(7)
	}
	switch n {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return r.Int64() >> r.IntN(63) * int64(1-2*r.IntN(2))
	case 3:
		return []float64{0, math.Copysign(0, -1), 1, 1.5, 1e21, 1e20, 1e-7, 0.000001, math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53}[r.IntN(11)]
	case 4, 5, 6:
		return randomText(r)
	case 7:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, randomJSON(r, depth+1))
		}
		return list
	}
	o := map[string]any{}
	for range r.IntN(6) {
		o[randomText(r)] = randomJSON(r, depth+1)
	}
	return o
}
