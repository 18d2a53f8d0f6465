package builtin_test

import (
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiregistration"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestAPIService(t *testing.T) {
	const service = "{metadata: {name: v1.a.b}, spec: {group: a.b, version: v1, groupPriorityMinimum: 1, versionPriority: 1}}"
	testkinds.Rules(t, service, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "service: {namespace: a, name: b}", ""},
		{"a name is of version and group", "metadata.name: v2.a.b", "metadata.name: Invalid value: \"v2.a.b\": must be `spec.version+\".\"+spec.group`: \"v1.a.b\""},
		{"only v1 has no group", "metadata.name: v2.\ngroup: ''\nversion: v2", "group: Required value: only v1 may have an empty group and it better be legacy kube"},
		{"a group is a name", "metadata.name: v1.A\ngroup: A", `group: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a version is a label", "metadata.name: 1.a.b\nversion: '1'", `version: Invalid value: "1": a DNS-1035 label must consist of...`},
		{"priorities are positive", "groupPriorityMinimum: 0\nversionPriority: 0", "groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000\nversionPriority: Invalid value: 0: must be positive and less than 1000"},
		{"priorities are bounded", "groupPriorityMinimum: 20001\nversionPriority: 1001", "groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000\nversionPriority: Invalid value: 1001: must be positive and less than 1000"},
		{"a local one has no certificates", "caBundle: eA==\ninsecureSkipTLSVerify: true", "caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle\ninsecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"},
		{"a service has names", "service: {}", "service.namespace: Required value\nservice.name: Required value"},
		{"a service has a port", "service: {namespace: a, name: b, port: 0}", "service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"},
		{"certificates or none", "service: {namespace: a, name: b}\ncaBundle: eA==\ninsecureSkipTLSVerify: true", "insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"},
	}), func(s *apiregistrationv1.APIService) []string {
		apiregistration.DefaultAPIService(s)
		return testkinds.Texts(apiregistration.ValidateAPIService(s))
	})
	testkinds.Updates(t, service, []testkinds.Update{
		{"status: a status is known", "", "status: {conditions: [{type: Available, status: Any}]}", `status.conditions[0].status: Unsupported value: "Any": supported values: "True", "False", "Unknown"`},
	}, func(s, old *apiregistrationv1.APIService) []string {
		return testkinds.Texts(apiregistration.ValidateStatus(s, old))
	})
	testkinds.Rules(t, service, []testkinds.Rule{
		{"default: a port", "spec.service: {namespace: a, name: b}", "spec.service.port: 443"},
	}, func(s *apiregistrationv1.APIService) []string {
		return testkinds.Changes(s, apiregistration.DefaultAPIService)
	})
}
