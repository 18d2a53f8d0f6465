package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// storedNumber returns the text of kube-apiserver for a number in a custom resource: it decodes the
// text, stores the encoded number, and decodes and encodes that again.
func storedNumber(t *testing.T, text string) string {
	t.Helper()
	for range 2 {
		var v any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	return text
}

// TestNumberTexts writes numbers in many texts with each verb, and checks their texts in custom
// resources.
func TestNumberTexts(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{{"POST " + definitions, definition(`"n":{"type":"number"},"all":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"text":{"type":"string"}`), 201, nil}})
	texts := []string{
		"0", "-0", "0.0", "-0.0", "0e0", "-0e5", "-0.000", "1", "-1", "1.0", "-1.0", "1.50", "1e3", "1E+2", "1e-3", "-1E-7", "1e-7", "0.000001",
		"123456789012345678", "9007199254740992", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551615",
		"1e18", "1e19", "1e20", "1e21", "1e22", "100000000000000000000", "1000000000000000000000", "1.7976931348623157e308", "5e-324", "-5e-324", "1e-400", "-1e-400",
		"0.1", "3.141592653589793238", "2.0000000000000000001", "1.0e0", "10e-1", "12e-1",
	}
	verbs := []struct{ verb, path, body string }{
		{"PUT", "", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%[1]q,"resourceVersion":%[2]s},"spec":%[3]s}`},
		{"MERGE", "", `{"metadata":{"name":%[1]q},"spec":%[3]s}`},
		{"JSON", "", `[{"op":"replace","path":"/spec","value":%[3]s}]`},
		{"APPLY", "?fieldManager=m&force=true", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%[1]q},"spec":%[3]s}`},
	}
	for i, text := range texts {
		spec := func(text string) string {
			return fmt.Sprintf(`{"n":%[1]s,"all":{"a":[%[1]s,{"b":%[1]s}]},"text":"-0,-0.0"}`, text)
		}
		want := spec(storedNumber(t, text))
		name := fmt.Sprintf("a%d", i)
		check := func(verb string, code int, b []byte) {
			t.Helper()
			var o struct{ Spec json.RawMessage }
			if err := json.Unmarshal(b, &o); err != nil || code >= 300 {
				t.Errorf("%s of %s: %d %s", verb, text, code, b)
				return
			}
			if got := rawMembers(t, o.Spec); got != rawMembers(t, json.RawMessage(want)) {
				t.Errorf("%s of %s: %s, want %s", verb, text, o.Spec, want)
			}
		}
		code, _, b := exchange(t, c, "POST", things+"?dryRun=All", thing(name, spec(text)))
		check("dry-run", code, b)
		code, _, b = exchange(t, c, "POST", things, thing(name, spec(text)))
		check("POST", code, b)
		code, _, b = exchange(t, c, "GET", things+"/"+name, "")
		check("GET", code, b)
		for _, v := range verbs {
			_, _, b := exchange(t, c, "MERGE", things+"/"+name, `{"spec":{"n":7,"all":null,"text":null}}`)
			version := pick(t, b, "metadata.resourceVersion")
			code, _, b := exchange(t, c, v.verb, things+"/"+name+v.path, strings.NewReplacer("%[1]q", fmt.Sprintf("%q", name), "%[2]s", version, "%[3]s", spec(text)).Replace(v.body))
			check(v.verb, code, b)
			code, _, b = exchange(t, c, "GET", things+"/"+name, "")
			check("GET after "+v.verb, code, b)
		}
	}
}

// rawMembers returns an object with sorted members and its numbers unchanged.
func rawMembers(t *testing.T, object json.RawMessage) string {
	t.Helper()
	var plain func(json.RawMessage) any
	plain = func(raw json.RawMessage) any {
		var members map[string]json.RawMessage
		var items []json.RawMessage
		switch {
		case json.Unmarshal(raw, &members) == nil && members != nil:
			out := map[string]any{}
			for name, m := range members {
				out[name] = plain(m)
			}
			return out
		case json.Unmarshal(raw, &items) == nil && items != nil:
			out := []any{}
			for _, i := range items {
				out = append(out, plain(i))
			}
			return out
		}
		return string(raw)
	}
	b, err := json.Marshal(plain(object))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
