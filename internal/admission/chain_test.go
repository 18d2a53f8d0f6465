package admission_test

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/admission"
)

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		enable, disable string
		want            string // what is wrong; empty: nothing
	}{
		{"", "", ""},
		{"ServiceAccount", "LimitRanger", ""},
		{"NamespaceLifecycle,LimitRanger", "ServiceAccount,NodeRestriction,ValidatingAdmissionWebhook", ""},
		{"Limits", "", `there is no admission plugin "Limits": want some of AlwaysAdmit, `},
		{"", "limitranger", `there is no admission plugin "limitranger": want some of `},
		{"ImagePolicyWebhook", "", "the admission plugin ImagePolicyWebhook is not a part of this server; these are: NamespaceLifecycle, LimitRanger, ServiceAccount, "},
		{"", "NamespaceLifecycle", "the admission plugin NamespaceLifecycle cannot be disabled; these can: LimitRanger, ServiceAccount, "},
		{"Priority", "Priority", "the admission plugin Priority is both enabled and disabled"},
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
			"NamespaceLifecycle": true, "NodeRestriction": false,
		} {
			if p.On(name) != want {
				t.Errorf("+%s -%s: %s is on: %v", test.enable, test.disable, name, !want)
			}
		}
	}
}
