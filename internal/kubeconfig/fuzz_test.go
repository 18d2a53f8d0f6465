package kubeconfig

import "testing"

// FuzzParse checks that a file counts as ours only if it differs from ours by changes that kubectl
// config makes.
func FuzzParse(f *testing.F) {
	f.Add(Config{Server: "https://x", CA: []byte("ca"), Token: "t"}.YAML())
	f.Add([]byte("apiVersion: v1\nkind: Config\n"))
	f.Add([]byte("clusters: [{name: tidemark, cluster: {extensions: [{name: tidemark.dev/kubeconfig}]}}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		parsed, why := parse(b)
		if why != "" {
			return
		}
		if len(parsed.Clusters) == 0 || parsed.Clusters[0].Cluster.Extensions[0].Name != mark {
			t.Errorf("taken for ours:\n%s", b)
		}
	})
}
