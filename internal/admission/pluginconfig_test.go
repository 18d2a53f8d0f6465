package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
)

// TestPluginConfig: a configuration is YAML or JSON of one of the kinds, and a strict kind refuses unknown
// and repeated fields.
func TestPluginConfig(t *testing.T) {
	kind := func(version string, strict bool) pluginconfig.Kind {
		return pluginconfig.Kind{
			GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Settings"},
			Object:           &corev1.ConfigMap{}, Strict: strict,
		}
	}
	strict, loose := []pluginconfig.Kind{kind("v1", true), kind("v2", true)}, []pluginconfig.Kind{kind("v1", false)}
	const head = "apiVersion: example.com/v1\nkind: Settings\n"
	for _, row := range []struct {
		text    string
		kinds   []pluginconfig.Kind
		refused string // a part of the error; empty: the member k is v
	}{
		{head + "data: {k: v}", strict, ""},
		{`{"apiVersion":"example.com/v2","kind":"Settings","data":{"k":"v"}}`, strict, ""},
		{head + "data: {k: v}\nother: 1", loose, ""},
		{head + "data: {k: v}\nother: 1", strict, `unknown field "other"`},
		{head + "data: {k: v}\ndata: {k: v}", strict, `key "data" already set in map`},
		{"apiVersion: example.com/v3\nkind: Settings", strict, `no kind "Settings" is registered for version "example.com/v3"`},
		{"data: {k: v}", strict, "Object 'Kind' is missing"},
		{"data: [", loose, "yaml:"},
	} {
		o, err := pluginconfig.Decode([]byte(row.text), row.kinds...)
		if row.refused != "" {
			if err == nil || !strings.Contains(err.Error(), row.refused) {
				t.Errorf("%s\n%v, want %s", row.text, err, row.refused)
			}
			continue
		}
		if err != nil || o.(*corev1.ConfigMap).Data["k"] != "v" {
			t.Errorf("%s\n%v, %v", row.text, o, err)
		}
	}
}
