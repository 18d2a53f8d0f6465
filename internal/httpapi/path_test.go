package httpapi

import (
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	tests := map[string]place{
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
		"/apis/apps":                   {kind: groupPath, group: "apps"},
		"/apis/apps/":                  {kind: groupPath, group: "apps"},
		"/api/v1":                      {kind: versionPath, version: "v1"},
		"/api/v1/":                     {kind: versionPath, version: "v1"},
		"/apis/apps/v1":                {kind: versionPath, group: "apps", version: "v1"},
		"/api/v1/pods":                 {kind: resourcePath, version: "v1", resource: "pods"},
		"/api/v1/pods/":                {kind: resourcePath, version: "v1", resource: "pods"},
		"/api/v1/nodes/n":              {kind: resourcePath, version: "v1", resource: "nodes", name: "n"},
		"/api/v1/nodes/n/status":       {kind: resourcePath, version: "v1", resource: "nodes", name: "n", sub: "status"},
		"/api/v1/namespaces":           {kind: resourcePath, version: "v1", resource: "namespaces"},
		"/api/v1/namespaces/x":         {kind: resourcePath, version: "v1", resource: "namespaces", name: "x", namespace: "x"},
		"/api/v1/namespaces/x/":        {kind: resourcePath, version: "v1", resource: "namespaces", name: "x", namespace: "x"},
		"/api/v1/namespaces/x/status":  {kind: resourcePath, version: "v1", resource: "namespaces", name: "x", namespace: "x", sub: "status"},
		"/api/v1/namespaces/x/pods":    {kind: resourcePath, version: "v1", inNamespace: true, namespace: "x", resource: "pods"},
		"/api/v1/namespaces/x/pods/p":  {kind: resourcePath, version: "v1", inNamespace: true, namespace: "x", resource: "pods", name: "p"},
		"/api/v1/namespaces//pods":     {kind: resourcePath, version: "v1", inNamespace: true, namespaceOfAll: true, resource: "pods"},
		"/api/v1/watch/pods":           {kind: resourcePath, version: "v1", watch: true, resource: "pods"},
		"/api/v1/watch":                {kind: resourcePath, version: "v1", resource: "watch"},
		"/api/v1/watch/namespaces/x":   {kind: resourcePath, version: "v1", watch: true, resource: "namespaces", name: "x", namespace: "x"},
		"/api/v1//pods":                {kind: resourcePath, version: "v1", malformed: true, name: "pods"},
		"/api/v1/pods//":               {kind: resourcePath, version: "v1", malformed: true, resource: "pods"},
		"/api/v1/namespaces/x/pods//x": {kind: resourcePath, version: "v1", malformed: true, inNamespace: true, namespace: "x", resource: "pods", sub: "x"},
		"/apis/apps/v1/namespaces/x/deployments/d/scale": {kind: resourcePath, group: "apps", version: "v1", inNamespace: true, namespace: "x", resource: "deployments", name: "d", sub: "scale"},
		"/api/v1/namespaces/x/pods/p/proxy/a/b":          {kind: resourcePath, version: "v1", inNamespace: true, namespace: "x", resource: "pods", name: "p", sub: "proxy", rest: "a/b"},
		"/api/v1/namespaces/x/pods/p/log/a/b":            {kind: resourcePath, version: "v1", inNamespace: true, namespace: "x", resource: "pods", name: "p", sub: "log", rest: "a/b", malformed: true},
	}
	for path, want := range tests {
		if got := parsePath(path); got != want {
			t.Errorf("parsePath(%q)\n got %+v\nwant %+v", path, got, want)
		}
	}
}

func TestParsePathAllocatesNothing(t *testing.T) {
	var p place
	n := testing.AllocsPerRun(100, func() { p = parsePath("/apis/apps/v1/namespaces/default/deployments/x/scale") })
	if n > 0 || p.resource != "deployments" {
		t.Errorf("%v allocations, resource %q", n, p.resource)
	}
}

// FuzzParsePath checks that what a path says is made of its own segments: a name
// with a slash in it could leave its namespace.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/api/v1/namespaces/a/pods/b/log", "/apis/x/v1/y", "/api/v1/watch/namespaces//", "/apis////", "/api/v1/namespaces/../pods/..", "/api/\x00/%2f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p := parsePath(path)
		for _, s := range []string{p.group, p.version, p.namespace, p.resource, p.name, p.sub} {
			if strings.Contains(s, "/") {
				t.Fatalf("parsePath(%q) has the segment %q", path, s)
			}
			if s != "" && !strings.Contains(path, "/"+s) {
				t.Fatalf("parsePath(%q) made %q up", path, s)
			}
		}
		if p.kind == resourcePath && p.resource == "" && !p.malformed {
			t.Fatalf("parsePath(%q) names no resource", path)
		}
		if p.kind != resourcePath && (p.resource != "" || p.name != "" || p.namespace != "") {
			t.Fatalf("parsePath(%q) = %+v", path, p)
		}
	})
}
