package tidemark_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tidemark-dev/tidemark"

// importRule says what a package may import of ours.
type importRule struct {
	of      string // path below the module
	allowed string // paths below the module, separated by spaces
	why     string
}

// importRules are the house: imports run one way, and each edge has a reason.
var importRules = []importRule{
	{"internal/store", "", "the store knows keys, bytes and revisions, and stands alone"},
	{"internal/store/memlog", "internal/store", "a log implements the store's contract"},
	{"internal/store/pebblelog", "internal/store", "a log implements the store's contract"},
	{"internal/derived", "internal/store", "what is made from stored objects follows their changes in the store"},
	{"internal/testrand", "", "chance stands alone"},
	{"internal/servertest", "", "tests use a server as other programs do"},
	{"internal/integration", "", "features are tested through the API"},
	{"internal/testkinds", "", "objects that tests send are files"},
	{"internal/store/storetest", "internal/store internal/testrand", "the suite sees a log as the store does"},
	{"internal/resource", "", "a type is data"},
	{"internal/builtin", "internal/builtin/admissionregistration internal/builtin/apiextensions internal/builtin/apiregistration internal/builtin/apps internal/builtin/autoscaling internal/builtin/batch internal/builtin/certificates internal/builtin/check internal/builtin/claimspec internal/builtin/columns internal/builtin/coordination internal/builtin/core internal/builtin/devices internal/builtin/discovery internal/builtin/flowcontrol internal/builtin/networking internal/builtin/node internal/builtin/policy internal/builtin/rbac internal/builtin/scheduling internal/builtin/storage internal/resource", "built-in kinds are rows of data, which name what each kind does"},
	{"internal/builtin/columns", "internal/resource", "how a kind prints follows from its objects alone"},
	{"internal/builtin/core", "internal/builtin/check internal/builtin/podspec", "what a kind does is a function of its objects; Pods and templates share the rules of their spec"},
	{"internal/builtin/podspec", "internal/builtin/check internal/builtin/claimspec internal/builtin/nodeselector", "the spec of a Pod is the same in all kinds that have one"},
	{"internal/builtin/claimspec", "internal/builtin/check", "the spec of a claim is the same in claims, Pods and StatefulSets"},
	{"internal/builtin/nodeselector", "internal/builtin/check", "Pods, volumes and devices select nodes in the same way"},
	{"internal/builtin/check", "", "what is said of single values stands alone"},
	{"internal/builtin/autoscaling", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/coordination", "", "what a kind does is a function of its objects"},
	{"internal/builtin/discovery", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/networking", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/policy", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/storage", "internal/builtin/check internal/builtin/claimspec internal/builtin/nodeselector", "what a kind does is a function of its objects"},
	{"internal/admission/addresses", "internal/builtin/core internal/registry internal/resource internal/store internal/wire", "the Services that are stored say which addresses are taken, and their transactions hold the IPAddresses"},
	{"internal/admission/defaultclass", "internal/derived internal/registry internal/store internal/wire", "the classes that are stored say which is the default"},
	{"internal/builtin/apps", "internal/builtin/check internal/builtin/claimspec internal/builtin/podspec", "workloads have templates of Pods, and StatefulSets of claims"},
	{"internal/builtin/batch", "internal/builtin/check internal/builtin/podspec", "workloads have templates of Pods"},
	{"internal/builtin/admissionregistration", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/apiextensions", "", "what a kind does is a function of its objects"},
	{"internal/builtin/apiregistration", "", "what a kind does is a function of its objects"},
	{"internal/builtin/certificates", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/devices", "internal/builtin/check internal/builtin/nodeselector", "what a kind does is a function of its objects"},
	{"internal/builtin/flowcontrol", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/node", "internal/builtin/check internal/builtin/podspec", "what a kind does is a function of its objects"},
	{"internal/builtin/rbac", "", "what a kind does is a function of its objects"},
	{"internal/builtin/scheduling", "", "what a kind does is a function of its objects"},
	{"internal/discovery", "internal/resource", "discovery is a view of the catalog"},
	{"internal/openapi", "internal/resource", "OpenAPI is a view of the catalog"},
	{"internal/wire", "internal/resource", "a representation depends on the type alone"},
	{"internal/patch", "", "a patch changes a document, whatever it is of"},
	{"internal/apply", "", "who owns which field follows from bytes and schemas alone"},
	{"internal/registry", "internal/apply internal/authn internal/inflight internal/patch internal/resource internal/store internal/uuid internal/wire", "the verbs stand on the store, on what changes objects and on the representations, and know no HTTP; who asks decides some answers"},
	{"internal/admission/quota", "internal/builtin/podspec internal/derived internal/registry internal/resource internal/store internal/wire", "the objects that are stored say what is used, and their transactions hold the charges"},
	{"internal/admission", "internal/admission/addresses internal/admission/defaultclass internal/admission/quota internal/builtin/certificates internal/builtin/podspec internal/crd internal/derived internal/registry internal/store", "the chain of plugins that the verbs call"},
	{"internal/startup", "internal/registry internal/resource internal/store internal/wire", "the first objects are written with the verbs, and known by the bytes that are stored"},
	{"internal/crd", "internal/builtin internal/derived internal/inflight internal/resource internal/store internal/uuid internal/wire", "the types of custom resources follow from the definitions that are stored; a Scale is that of built-in kinds"},
	{"internal/controller", "internal/admission/addresses internal/admission/quota internal/crd internal/registry internal/resource internal/store internal/wire", "the loops use the verbs, as clients do, and read the store's state; they know no HTTP"},
	{"internal/deflate", "", "compressed pieces are bytes"},
	{"internal/inflight", "", "seats and bytes are counted, whatever requests do with them"},
	{"internal/uuid", "", "chance that is put into text stands alone"},
	{"internal/atomicfile", "", "writing a file stands alone"},
	{"internal/reload", "", "reading a changed file again stands alone"},
	{"internal/authn", "internal/reload", "credentials come from files that change"},
	{"internal/satoken", "internal/atomicfile internal/authn internal/uuid", "tokens are signed with keys kept in files, and tell the authenticator who they are of"},
	{"internal/virtual", "internal/authn internal/authz internal/registry internal/resource internal/satoken", "what is asked and never stored is answered by who knows: the authenticator, the authorizer, the signer of tokens"},
	{"internal/authz", "internal/authn", "what somebody may do depends on who it is"},
	{"internal/pki", "internal/atomicfile", "certificates are kept in files"},
	{"internal/kubeconfig", "internal/atomicfile", "a kubeconfig is a file"},
	{"internal/http2", "", "the protocol stands alone"},
	{"internal/serving", "internal/authn internal/http2", "the listener tells the authenticator of certificates, and hands connections to the protocol"},
	{"internal/httpapi", "internal/authn internal/authz internal/deflate internal/discovery internal/inflight internal/registry internal/resource internal/store internal/uuid internal/wire", "HTTP is the outermost layer; of the store it knows the objects that lists are made of"},
	{"cmd/tidemark/internal/progress", "", "telling people stands alone"},
	{"cmd/tidemark/internal/bench", "cmd/tidemark/internal/progress", "a server is measured through its API alone"},
	{"cmd/tidemark/internal/conformance", "cmd/tidemark/internal/progress resourceversion", "a server is checked through its API alone"},
	{"resourceversion", "", "clients of any server use it, and want nothing else of ours"},
	{"consistentlist", "resourceversion", "clients of any server use it, and want nothing else of ours"},
	{"datadir", "internal/atomicfile internal/store internal/store/pebblelog", "a data directory is where a durable log lives; only who imports it links Pebble"},
}

// forbidden are imports that a package and what it imports must not reach.
var forbidden = []importRule{
	{"", "github.com/cockroachdb/pebble", "a server in memory must not link Pebble"},
	{"internal/registry", "net/http", "the verbs know no HTTP"},
	{"internal/store", "k8s.io encoding/json net/http", "the store knows no Kubernetes and no JSON"},
	{"internal/store/pebblelog", "k8s.io", "the store knows no Kubernetes"},
	{"consistentlist", "k8s.io/client-go k8s.io/api", "a list works with any client, and brings none"},
}

// standardOnly are packages that reach nothing but the standard library.
var standardOnly = []importRule{
	{of: "resourceversion", why: "who compares two versions must not link a client"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// TestImports holds the rules, and finds rules that no longer match anything.
func TestImports(t *testing.T) {
	packages := list(t)
	used := map[string]bool{}
	for _, p := range packages {
		for _, imported := range p.Imports {
			edge, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			of := strings.TrimPrefix(p.ImportPath, module+"/")
			i := slices.IndexFunc(importRules, func(r importRule) bool { return r.of == of })
			switch {
			case i < 0 && strings.Contains("/"+of, "/internal/"):
				t.Errorf("%s has no rule: say in importRules what it may import, and why", of)
			case i >= 0 && !slices.Contains(strings.Fields(importRules[i].allowed), edge):
				t.Errorf("%s must not import %s: %s", of, edge, importRules[i].why)
			}
			used[of+" "+edge] = true
		}
	}
	for _, r := range importRules {
		if !slices.ContainsFunc(packages, func(p listed) bool { return p.ImportPath == module+"/"+r.of }) {
			t.Errorf("the rule for %s is stale: there is no such package", r.of)
			continue
		}
		for edge := range strings.FieldsSeq(r.allowed) {
			if !used[r.of+" "+edge] {
				t.Errorf("the rule for %s is stale: it does not import %s", r.of, edge)
			}
		}
	}
}

// TestForbidden looks at everything that a package links.
func TestForbidden(t *testing.T) {
	packages := list(t)
	for _, r := range forbidden {
		path := strings.TrimSuffix(module+"/"+r.of, "/")
		i := slices.IndexFunc(packages, func(p listed) bool { return p.ImportPath == path })
		if i < 0 {
			t.Errorf("the rule for %q is stale: there is no such package", r.of)
			continue
		}
		for bad := range strings.FieldsSeq(r.allowed) {
			for _, dep := range packages[i].reach(r.of == "internal/registry") {
				if dep == bad || strings.HasPrefix(dep, bad+"/") {
					t.Errorf("%s reaches %s: %s", path, dep, r.why)
				}
			}
		}
	}
}

// TestStandardOnly looks for packages of other modules, whose paths begin with a
// domain.
func TestStandardOnly(t *testing.T) {
	packages := list(t)
	for _, r := range standardOnly {
		i := slices.IndexFunc(packages, func(p listed) bool { return p.ImportPath == module+"/"+r.of })
		if i < 0 {
			t.Errorf("the rule for %q is stale: there is no such package", r.of)
			continue
		}
		for _, dep := range packages[i].Deps {
			if host, _, _ := strings.Cut(dep, "/"); strings.Contains(host, ".") {
				t.Errorf("%s reaches %s: %s", r.of, dep, r.why)
			}
		}
	}
}

// reach is what a package links, or only what it imports itself where libraries
// may link more.
func (p listed) reach(direct bool) []string {
	if direct {
		return p.Imports
	}
	return p.Deps
}

func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(fmt.Errorf("go list: %w", err))
		}
		all = append(all, p)
	}
	return all
}
