package admission_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/admission"
)

// TestDocument checks that docs/admission.md lists the plugins in their order.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/admission.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (on|off) \\|").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[2]+" "+row[1])
	}
	var want []string
	byDefault, optional := admission.Modes()
	for mode, names := range map[string]string{"on": byDefault, "off": optional} {
		last := -1
		for _, name := range strings.Split(names, ", ") {
			at := slices.Index(listed, mode+" "+name)
			if at <= last {
				t.Errorf("%s (%s) is missing, or not in its place", name, mode)
			}
			last = at
			want = append(want, mode+" "+name)
		}
	}
	if len(want) != len(listed) {
		t.Errorf("the document has %v, the server %v", listed, want)
	}
}

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		enable, disable string
		want            string // what is wrong; empty: nothing
	}{
		{"", "", ""},
		{"ServiceAccount", "LimitRanger", ""},
		{"NamespaceLifecycle,LimitRanger", "ServiceAccount,NodeRestriction,ValidatingAdmissionWebhook", ""},
		{"Limits", "", `--enable-admission-plugins: the plugin "Limits" is unknown: want some of AlwaysAdmit, `},
		{"", "limitranger", `--disable-admission-plugins: the plugin "limitranger" is unknown: want some of `},
		{"ImagePolicyWebhook", "NamespaceLifecycle", ""},
		{"Priority", "Priority", "--enable-admission-plugins and --disable-admission-plugins both have Priority"},
		{"A,AlwaysDeny", "AlwaysDeny,B", `[--enable-admission-plugins: the plugin "A" is unknown: `},
	} {
		split := func(s string) []string {
			if s == "" {
				return nil
			}
			return strings.Split(s, ",")
		}
		p, err := admission.Choose(split(test.enable), split(test.disable))
		if err == nil && test.want != "" || err != nil && (test.want == "" || !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("+%s -%s: %v, want %q", test.enable, test.disable, err, test.want)
		}
		if err != nil {
			continue
		}
		for name, want := range map[string]bool{
			"LimitRanger": !strings.Contains(test.disable, "LimitRanger"), "ServiceAccount": strings.Contains(test.enable, "ServiceAccount"),
			"NamespaceLifecycle": !strings.Contains(test.disable, "NamespaceLifecycle"), "NodeRestriction": false,
		} {
			if p.On(name) != want {
				t.Errorf("+%s -%s: %s is on: %v", test.enable, test.disable, name, !want)
			}
		}
	}
}
