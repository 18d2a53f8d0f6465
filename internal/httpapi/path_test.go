package httpapi

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// attributes is short for the tables of this file.
type attributes = authz.Attributes

func TestParsePath(t *testing.T) {
	tests := map[string]requestInfo{
		"/":                            {},
		"":                             {},
		"/nope":                        {},
		"/apix":                        {},
		"/apisx":                       {},
		"//api":                        {},
		"/api":                         {kind: rootAPI},
		"/api/":                        {kind: rootAPI},
		"/apis":                        {kind: rootAPIs},
		"/apis/":                       {kind: rootAPIs},
		"/apis//v1":                    {},
		"/apis/apps":                   {kind: groupPath, Attributes: attributes{Group: "apps"}},
		"/apis/apps/":                  {kind: groupPath, Attributes: attributes{Group: "apps"}},
		"/api/v1":                      {kind: versionPath, Attributes: attributes{Version: "v1"}},
		"/api/v1/":                     {kind: versionPath, Attributes: attributes{Version: "v1"}},
		"/apis/apps/v1":                {kind: versionPath, Attributes: attributes{Group: "apps", Version: "v1"}},
		"/api/v1/pods":                 {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "pods"}},
		"/api/v1/pods/":                {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "pods"}},
		"/api/v1/nodes/n":              {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "nodes", Name: "n"}},
		"/api/v1/nodes/n/status":       {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "nodes", Name: "n", Subresource: "status"}},
		"/api/v1/namespaces":           {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "namespaces"}},
		"/api/v1/namespaces/x":         {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "namespaces", Name: "x", Namespace: "x"}},
		"/api/v1/namespaces/x/":        {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "namespaces", Name: "x", Namespace: "x"}},
		"/api/v1/namespaces/x/status":  {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "namespaces", Name: "x", Namespace: "x", Subresource: "status"}},
		"/api/v1/namespaces/x/pods":    {kind: resourcePath, inNamespace: true, Attributes: attributes{Version: "v1", Namespace: "x", Resource: "pods"}},
		"/api/v1/namespaces/x/pods/p":  {kind: resourcePath, inNamespace: true, Attributes: attributes{Version: "v1", Namespace: "x", Resource: "pods", Name: "p"}},
		"/api/v1/namespaces//pods":     {kind: resourcePath, inNamespace: true, emptyScope: true, Attributes: attributes{Version: "v1", Resource: "pods"}},
		"/api/v1/watch/pods":           {kind: resourcePath, watch: true, Attributes: attributes{Version: "v1", Resource: "pods"}},
		"/api/v1/watch":                {kind: resourcePath, Attributes: attributes{Version: "v1", Resource: "watch"}},
		"/api/v1/watch/namespaces/x":   {kind: resourcePath, watch: true, Attributes: attributes{Version: "v1", Resource: "namespaces", Name: "x", Namespace: "x"}},
		"/api/v1//pods":                {kind: resourcePath, malformed: true, Attributes: attributes{Version: "v1", Name: "pods"}},
		"/api/v1/pods//":               {kind: resourcePath, malformed: true, Attributes: attributes{Version: "v1", Resource: "pods"}},
		"/api/v1/namespaces/x/pods//x": {kind: resourcePath, malformed: true, inNamespace: true, Attributes: attributes{Version: "v1", Namespace: "x", Resource: "pods", Subresource: "x"}},
		"/apis/apps/v1/namespaces/x/deployments/d/scale": {kind: resourcePath, inNamespace: true, Attributes: attributes{Group: "apps", Version: "v1", Namespace: "x", Resource: "deployments", Name: "d", Subresource: "scale"}},
		"/api/v1/namespaces/x/pods/p/proxy/a/b":          {kind: resourcePath, inNamespace: true, rest: "a/b", Attributes: attributes{Version: "v1", Namespace: "x", Resource: "pods", Name: "p", Subresource: "proxy"}},
		"/api/v1/namespaces/x/pods/p/log/a/b":            {kind: resourcePath, inNamespace: true, rest: "a/b", malformed: true, Attributes: attributes{Version: "v1", Namespace: "x", Resource: "pods", Name: "p", Subresource: "log"}},
	}
	for path, want := range tests {
		if got := parsePath(path); got != want {
			t.Errorf("parsePath(%q)\n got %+v\nwant %+v", path, got, want)
		}
	}
}

func TestParsePathAllocatesNothing(t *testing.T) {
	var p requestInfo
	n := testing.AllocsPerRun(100, func() { p = parsePath("/apis/apps/v1/namespaces/default/deployments/x/scale") })
	if n > 0 || p.Resource != "deployments" {
		t.Errorf("%v allocations, resource %q", n, p.Resource)
	}
}

// FuzzParsePath checks that the parts of a path are its own segments: a name with a slash in it
// could leave its namespace.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/api/v1/namespaces/a/pods/b/log", "/apis/x/v1/y", "/api/v1/watch/namespaces//", "/apis////", "/api/v1/namespaces/../pods/..", "/api/\x00/%2f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p := parsePath(path)
		for _, s := range []string{p.Group, p.Version, p.Namespace, p.Resource, p.Name, p.Subresource} {
			if strings.Contains(s, "/") {
				t.Fatalf("parsePath(%q) has the segment %q", path, s)
			}
			if s != "" && !strings.Contains(path, "/"+s) {
				t.Fatalf("parsePath(%q) made %q up", path, s)
			}
		}
		if p.kind == resourcePath && p.Resource == "" && !p.malformed {
			t.Fatalf("parsePath(%q) names no resource", path)
		}
		if p.kind != resourcePath && (p.Resource != "" || p.Name != "" || p.Namespace != "") {
			t.Fatalf("parsePath(%q) = %+v", path, p)
		}
	})
}
