package admission

import (
	"errors"
	"testing"
)

func FuzzConfiguration(f *testing.F) {
	f.Add("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: EventRateLimit, path: a}]")
	f.Add("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: PodSecurity, configuration: {a: b}}]")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseConfiguration([]byte(text), func(path string) ([]byte, error) {
			if path == "" {
				t.Error("a file without a name is read")
			}
			return nil, errors.New("no file")
		})
		if err == nil && all == nil {
			t.Error("neither a configuration nor an error")
		}
	})
}

func FuzzNodeSelectors(f *testing.F) {
	f.Add("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: \"a=b,c=d\", ns: \"\"}")
	f.Add("podNodeSelectorPluginConfig: {ns: \"a in (b)\"}")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseNodeSelectors([]byte(text))
		if err == nil && all == nil {
			t.Error("neither a configuration nor an error")
		}
	})
}
