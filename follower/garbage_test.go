package follower_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestGarbage: the server refuses transactions whose values are no objects of their kinds, and goes on after those of unknown
// kinds, also after a restart.
func TestGarbage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freeport.Find(t)
	p := &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Listen: tidemark.Listen{Port: port}}
	must(t, p.Start(t.Context()))
	t.Cleanup(func() { p.Close() })
	f := start(t, following(p.RESTConfig(), t.TempDir()))
	client := servertest.Client(t, p.RESTConfig())
	var head struct{ Run string }
	_, text := servertest.Get(t, p.RESTConfig(), "/replication/v1/head")
	must(t, json.Unmarshal([]byte(text), &head))
	run := head.Run
	// send sends a creation. The resource version is where the value has the first "".
	send := func(code int, collection, key, value string) {
		t.Helper()
		at := max(strings.Index(value, `""`)+1, 0)
		body := []byte{1}
		for _, s := range []string{collection, key} {
			body = append(binary.AppendUvarint(body, uint64(len(s))), s...)
		}
		body = binary.AppendUvarint(append(body, 1, 0), uint64(at))
		body = append(binary.AppendUvarint(body, uint64(len(value))), value...)
		r, err := client.Post(p.URL()+"/replication/v1/transactions?run="+run, "application/octet-stream", strings.NewReader(string(body)+"\x00\x00"))
		must(t, err)
		if r.Body.Close(); r.StatusCode != code {
			t.Errorf("%s %q %q: %d, want %d", collection, key, value, r.StatusCode, code)
		}
	}
	run = "another"
	send(409, "configmaps", "default/a", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":""}}`)
	run = head.Run
	before := state(t, p)
	for _, value := range []string{
		"", "x", "[]", "null", "3", "{}", `{"metadata":{"resourceVersion":""}}`, `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a","resourceVersion":"1"}}`,
		`{"metadata":{"name":"a","resourceVersion":""}}`, `{"metadata":{"name":"b","namespace":"default","resourceVersion":""}}`,
		`{"metadata":{"name":"default/a","resourceVersion":""}}`, `{"metadata":{"name":7,"namespace":"default","resourceVersion":""}}`,
		`{"metadata":{"name":"a","namespace":"default","resourceVersion":""}`, `{"metadata":{"name":"a","namespace":"default","generateName":"","resourceVersion":"1"}}`,
		"k8s\x00\x0a\x0f\x0a\x02v1", strings.Repeat("[", 100_000),
	} {
		send(400, "configmaps", "default/a", value)
	}
	if after := state(t, p); after != before {
		t.Errorf("the server has\n%s\nbefore it had\n%s", after, before)
	}
	for collection, rest := range map[string]string{
		"nodes": `"kind":"Node","apiVersion":"v1","spec":7`, "namespaces": `"kind":"Namespace","apiVersion":"v1","status":[]`,
		"persistentvolumes":                                              `"kind":"PersistentVolume","apiVersion":"v1","spec":{"capacity":{"storage":"1e-900000000"}}`,
		"clusterroles.rbac.authorization.k8s.io":                         `"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1","rules":3`,
		"priorityclasses.scheduling.k8s.io":                              `"kind":"PriorityClass","apiVersion":"scheduling.k8s.io/v1","value":"x"`,
		"customresourcedefinitions.apiextensions.k8s.io":                 `"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":[]`,
		"validatingwebhookconfigurations.admissionregistration.k8s.io":   `"kind":"ValidatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","webhooks":7`,
		"validatingadmissionpolicybindings.admissionregistration.k8s.io": `"kind":"ValidatingAdmissionPolicyBinding","apiVersion":"admissionregistration.k8s.io/v1","spec":"x"`,
		"clusterrolebindings.rbac.authorization.k8s.io":                  `"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1"`,
		"runtimeclasses.node.k8s.io":                                     `"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1beta1","handler":"a"`,
		"storageclasses.storage.k8s.io":                                  `"provisioner":"a"`,
		"csidrivers.storage.k8s.io":                                      `"Kind":"CSIDriver","apiVersion":"storage.k8s.io/v1","spec":{}`,
		"../../etc":                                                      `"a":1`,
		"widgets.example.com":                                            `"spec":{}`,
		"gadgets.example.com":                                            `"Kind":"Gadget","APIVersion":"example.com/v1"`,
	} {
		send(400, collection, "bad", `{"metadata":{"name":"bad","resourceVersion":""},`+rest+`}`)
	}
	send(400, "nodes", "bad", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"bad","labels":7,"resourceVersion":""}}`)
	send(400, "widgets.example.com", "bad", `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"bad","labels":7,"resourceVersion":""}}`)
	if after := state(t, p); after != before {
		t.Errorf("the server has\n%s\nbefore it had\n%s", after, before)
	}
	for collection, rest := range map[string]string{"unknown": `"a":1`, "widgets.example.com": `"kind":"Widget","apiVersion":"example.com/v1"`} {
		send(200, collection, "bad", `{"metadata":{"name":"bad","resourceVersion":""},`+rest+`}`)
	}
	for i := range 2 {
		for n, s := range []*tidemark.Server{p, f} {
			if _, err := maps(s)(t.Context(), fmt.Sprintf("after-%d-%d", i, n), ""); err != nil {
				t.Errorf("%d: a write afterwards: %v", n, err)
			}
			servertest.WantCode(t, s.RESTConfig(), "/readyz", 200, "")
		}
		if i == 0 {
			must(t, p.Close())
			p = &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Listen: tidemark.Listen{Port: port}}
			must(t, p.Start(t.Context()))
		}
	}
}
