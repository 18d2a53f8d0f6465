package crds

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	explain "k8s.io/kubectl/pkg/explain/v2"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// TestOthersAreServed checks that the definitions of other projects are accepted, that objects can
// be created at once, and that kubectl explains each field.
func TestOthersAreServed(t *testing.T) {
	tier.Full(t)
	config := servers.Quick(servers.Start(t).RESTConfig())
	s, r := newSender(t, config), maker{Rand: random(t)}
	documents := discovery.NewDiscoveryClientForConfigOrDie(config).OpenAPIV3()
	objects, stored := 0, 0
	for _, d := range corpus(t) {
		if got := s.send(t, request{"POST", definitions, "", d.body}); got.code != http.StatusCreated {
			t.Errorf("%s: %d %v", d.name, got.code, got.body["message"])
			continue
		}
		for _, v := range d.versions {
			objects++
			o := r.object(v.schema, d.group+"/"+v.name, d.kind, "a-"+v.name)
			got := s.send(t, request{"POST", d.collection(v, "default") + "?dryRun=All", "", o})
			switch got.code {
			case http.StatusCreated:
				stored++
			case http.StatusUnprocessableEntity: // rules that are not in the schema
			default:
				t.Errorf("%s: %d %v", d.name, got.code, got.body["message"])
			}
		}
	}
	if stored < objects/2 {
		t.Errorf("%d of %d objects were right", stored, objects)
	}
	t.Logf("%d of %d objects were right", stored, objects)
	for _, d := range corpus(t) {
		for _, v := range d.versions {
			gvr := schema.GroupVersionResource{Group: d.group, Version: v.name, Resource: d.plural}
			var out bytes.Buffer
			if err := explain.PrintModelDescription(nil, &out, documents, gvr, true, 0, "plaintext"); err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
			properties, _ := v.schema["properties"].(tree)
			for name := range properties {
				if !strings.Contains(out.String(), "\n  "+name+"\t") {
					t.Errorf("%s is explained without %s:\n%s", d.name, name, out.String()[:min(out.Len(), 2000)])
				}
			}
		}
	}
}
