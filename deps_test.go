package tidemark_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/tidemark-dev/tidemark"

// importRule lists the packages of this module that a package may import.
type importRule struct {
	of      string // path below the module
	allowed string // paths below the module, separated by spaces
	why     string
}

// importRules holds the allowed imports: they run downwards, and each has a reason.
var importRules = []importRule{
	{"internal/store", "internal/exposition internal/store/notify", "the store knows keys, bytes and revisions, and depends on nothing but the format of its metrics"},
	{"internal/store/notify", "", "waiting readers are woken in batches, whatever they read"},
	{"internal/store/groupcommit", "internal/store", "a writer sees a store through its Publisher, and not the other writer"},
	{"internal/store/sharedwriter", "internal/store", "a writer sees a store through its Publisher, and not the other writer"},
	{"internal/store/stores", "internal/store internal/store/groupcommit internal/store/sharedwriter", "a store gets the writer for its log in one place"},
	{"internal/store/memlog", "internal/store", "a log implements the store's contract"},
	{"internal/store/pebblelog", "internal/store", "a log implements the store's contract"},
	{"internal/store/storetest/sharedmem", "internal/store", "a log implements the store's contract"},
	{"internal/store/etcdlog", "internal/store", "a log implements the store's contract"},
	{"internal/world", "backups internal/admission internal/admission/addresses internal/admission/manifest internal/admission/match internal/admission/quota internal/admission/webhook internal/aggregation internal/audit internal/authn internal/authn/issuers internal/authn/webhook internal/authz internal/authz/abac internal/authz/config internal/authz/node internal/authz/rbac internal/autobackup internal/builtin internal/changes internal/clock internal/connect internal/control internal/controller internal/crd internal/cron internal/derived internal/encryption internal/exposition internal/fault internal/features internal/forkapi internal/httpapi internal/inprocess internal/kubeconfig internal/kubelet internal/openapi internal/peers internal/pki internal/registry internal/replication internal/resource internal/satoken internal/serving internal/startup internal/statusapi internal/storage internal/store internal/store/memlog internal/store/stores internal/upgraded internal/uuid internal/virtual internal/webhook internal/wire", "the parts of a server are assembled in one place; package tidemark alone knows it, and the command the names of its logs"},
	{"internal/upgraded", "internal/builtin internal/resource internal/store internal/wire", "objects of an older version get the defaults of the built-in kinds"},
	{"internal/kubeversion", "", "the version depends on no other package"},
	{"internal/features", "internal/kubeversion", "kinds, fields and gates by version depend on no other package"},
	{"internal/storage", "internal/encryption internal/replication internal/store", "an open place of objects is a log, and what else the place can do"},
	{"internal/serverclient", "", "a request outside the API depends on no other package"},
	{"internal/replication", "internal/encryption internal/serverclient internal/store", "a follower exchanges changes and transactions with its server"},
	{"internal/etcdsnapshot", "internal/atomicfile", "a snapshot file has keys, bytes and revisions"},
	{"internal/migrate", "etcdstore internal/etcdsnapshot internal/store internal/etcdvalue", "a migration reads one store and checks the other one; the command opens both"},
	{"internal/dump", "internal/storage internal/store internal/store/memlog", "a dump is the beginning of a log in memory"},
	{"internal/encryption", "internal/store internal/uuid", "a log that encrypts wraps another one"},
	{"internal/etcdvalue", "internal/builtin internal/encryption internal/resource internal/store internal/wire", "what etcd holds follows from the built-in kinds and their representations"},
	{"internal/encryption/kmstest", "", "a KMS plugin of tests speaks the protocol alone"},
	{"internal/derived", "internal/store", "derived values follow the changes of stored objects"},
	{"internal/quantity", "", "the limits of a quantity depend on its text alone"},
	{"internal/regex", "", "the cost of a pattern depends on its text alone"},
	{"internal/unexported", "", "the fields of libraries depend on no package of ours"},
	{"internal/celenv", "internal/quantity internal/regex", "the functions of CEL depend on values alone"},
	{"internal/expression", "internal/celenv internal/unexported", "expressions depend on values alone"},
	{"internal/testrand", "", "random test input depends on no other package"},
	{"internal/freeport", "", "a port depends on no other package"},
	{"internal/servertest", "internal/storage internal/store/storetest/sharedmem", "tests use a server as other programs do; several servers share a log in memory"},
	{"internal/integration", "", "features are tested through the API"},
	{"internal/testkinds", "", "the objects of tests are embedded files"},
	{"internal/store/storetest", "internal/await internal/store internal/store/stores internal/testrand internal/tier", "the suite sees a log as the store does"},
	{"internal/resource", "", "a type is data"},
	{"internal/builtin", "internal/builtin/admissionregistration internal/builtin/apiextensions internal/builtin/apiregistration internal/builtin/apps internal/builtin/autoscaling internal/builtin/batch internal/builtin/certificates internal/builtin/check internal/builtin/claimspec internal/builtin/columns internal/builtin/coordination internal/builtin/core internal/builtin/declared internal/builtin/devices internal/builtin/discovery internal/builtin/flowcontrol internal/builtin/gated internal/builtin/networking internal/builtin/node internal/builtin/podspec internal/builtin/policy internal/builtin/rbac internal/builtin/scheduling internal/builtin/storage internal/builtin/storagemigration internal/features internal/resource internal/wire", "built-in kinds are rows of data, which name what each kind does"},
	{"internal/builtin/declared", "internal/builtin/check internal/builtin/declared/admissionregistrationv1 internal/builtin/declared/autoscalingv1 internal/builtin/declared/autoscalingv2 internal/builtin/declared/batchv1 internal/builtin/declared/certificatesv1 internal/builtin/declared/corev1 internal/builtin/declared/discoveryv1 internal/builtin/declared/flowcontrolv1 internal/builtin/declared/networkingv1 internal/builtin/declared/nodev1 internal/builtin/declared/rbacv1 internal/builtin/declared/resourcev1 internal/builtin/declared/storagev1", "declared rules follow from the types of k8s.io/api alone"},
	{"internal/builtin/declared/admissionregistrationv1", "", "generated from the types of one version"},
	{"internal/builtin/declared/autoscalingv1", "", "generated from the types of one version"},
	{"internal/builtin/declared/autoscalingv2", "", "generated from the types of one version"},
	{"internal/builtin/declared/batchv1", "internal/builtin/declared/corev1", "generated from the types of one version"},
	{"internal/builtin/declared/certificatesv1", "", "generated from the types of one version"},
	{"internal/builtin/declared/corev1", "", "generated from the types of one version"},
	{"internal/builtin/declared/discoveryv1", "", "generated from the types of one version"},
	{"internal/builtin/declared/flowcontrolv1", "", "generated from the types of one version"},
	{"internal/builtin/declared/networkingv1", "", "generated from the types of one version"},
	{"internal/builtin/declared/nodev1", "internal/builtin/declared/corev1", "generated from the types of one version"},
	{"internal/builtin/declared/rbacv1", "", "generated from the types of one version"},
	{"internal/builtin/declared/resourcev1", "", "generated from the types of one version"},
	{"internal/builtin/declared/storagev1", "", "generated from the types of one version"},
	{"internal/builtin/columns", "internal/resource", "how a kind prints follows from its objects alone"},
	{"internal/builtin/core", "internal/builtin/check internal/builtin/podspec", "what a kind does is a function of its objects; Pods and templates share the rules of their spec"},
	{"internal/builtin/podspec", "internal/builtin/check internal/builtin/claimspec internal/builtin/nodeselector internal/quantity", "the spec of a Pod is the same in all kinds that have one"},
	{"internal/builtin/claimspec", "internal/builtin/check", "the spec of a claim is the same in claims, Pods and StatefulSets"},
	{"internal/builtin/nodeselector", "internal/builtin/check", "Pods, volumes and devices select nodes in the same way"},
	{"internal/builtin/gated", "internal/features", "disabled fields follow from the Go types and the table of gates"},
	{"internal/builtin/check", "", "the rules for single values depend on no other package"},
	{"internal/builtin/autoscaling", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/coordination", "", "what a kind does is a function of its objects"},
	{"internal/builtin/discovery", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/networking", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/policy", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/storage", "internal/builtin/check internal/builtin/claimspec internal/builtin/nodeselector", "what a kind does is a function of its objects"},
	{"internal/admission/addresses", "internal/builtin/core internal/registry internal/resource internal/store internal/wire", "stored Services determine the allocated addresses, and their transactions write the IPAddresses"},
	{"internal/admission/defaultclass", "internal/derived internal/registry internal/store internal/wire", "stored classes determine the default"},
	{"internal/builtin/apps", "internal/builtin/check internal/builtin/claimspec internal/builtin/podspec", "workloads have templates of Pods, and StatefulSets of claims"},
	{"internal/builtin/batch", "internal/builtin/check internal/builtin/podspec internal/cron", "workloads have templates of Pods, and CronJobs have schedules"},
	{"internal/autobackup", "backups internal/cron internal/store", "a schedule decides when a storage is copied to a place"},
	{"internal/statusapi", "internal/forkapi", "server and command exchange messages"},
	{"backups", "internal/atomicfile internal/dirlock", "a folder keeps files"},
	{"backups/s3", "backups", "a bucket is a place; only programs that import it link its client"},
	{"internal/cron", "", "a schedule depends on no other package"},
	{"internal/builtin/admissionregistration", "internal/builtin/check internal/expression", "what a kind does is a function of its objects, whose expressions are compiled"},
	{"internal/builtin/apiextensions", "internal/celenv internal/regex", "what a kind does is a function of its objects"},
	{"internal/builtin/apiregistration", "", "what a kind does is a function of its objects"},
	{"internal/builtin/certificates", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/devices", "internal/builtin/check internal/builtin/claimspec internal/builtin/nodeselector internal/celenv", "what a kind does is a function of its objects"},
	{"internal/builtin/flowcontrol", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/node", "internal/builtin/check internal/builtin/podspec", "what a kind does is a function of its objects"},
	{"internal/builtin/rbac", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/storagemigration", "internal/builtin/check", "what a kind does is a function of its objects"},
	{"internal/builtin/scheduling", "", "what a kind does is a function of its objects"},
	{"internal/discovery", "internal/resource", "discovery is a view of the catalog"},
	{"internal/openapi", "internal/fairness internal/resource", "OpenAPI is a view of the catalog; a request that waits for it has no seat"},
	{"internal/wire", "internal/quantity internal/resource", "a representation depends on the type alone"},
	{"internal/patch", "", "a patch changes any document, of any type"},
	{"internal/jsontext", "", "JSON is written without knowing what it is about"},
	{"internal/apply", "internal/jsontext", "field ownership depends on bytes and schemas only"},
	{"internal/changes", "internal/apply", "the fields of a change are those of a comparison"},
	{"internal/history", "internal/apply internal/changes internal/store", "the history is that of the store, and does not depend on who asks for it"},
	{"internal/registry", "internal/apply internal/authn internal/fairness internal/patch internal/resource internal/shard internal/store internal/store/notify internal/tracing internal/uuid internal/wire", "the verbs use the store, patches, apply and representations, and know no HTTP; some responses depend on the user"},
	{"internal/shard", "", "a shard is a range of hashes"},
	{"internal/admission/quota", "internal/admission/pluginconfig internal/builtin/podspec internal/derived internal/registry internal/resource internal/store internal/wire", "stored objects determine the usage, and their transactions write the charges"},
	{"internal/admission/noderestriction", "internal/authn internal/authz internal/authz/node internal/builtin/certificates internal/registry internal/store", "what a node may write depends on the body and on the Pods that it runs"},
	{"internal/admission/match", "internal/authn internal/authz internal/expression internal/registry internal/series internal/store", "what a webhook or a policy applies to depends on the request and on its namespace"},
	{"internal/admission/eventlimit", "internal/admission/pluginconfig internal/registry internal/store", "writes of Events are counted"},
	{"internal/admission/imagepolicy", "internal/fairness internal/registry internal/store internal/webhook", "a remote service decides on the images of Pods"},
	{"internal/admission/manifest", "internal/builtin/admissionregistration internal/reload internal/store", "files have the same rules as stored objects of their kinds"},
	{"internal/admission/pluginconfig", "", "decoding a configuration depends on no other package"},
	{"internal/admission/webhook", "internal/admission/manifest internal/admission/match internal/authn internal/authz internal/derived internal/expression internal/fairness internal/jsontext internal/patch internal/registry internal/series internal/store internal/tracing internal/uuid internal/webhook internal/wire", "a webhook sees a request as it is in the chain, and patches it"},
	{"internal/admission/policy", "internal/admission/manifest internal/admission/match internal/authz internal/derived internal/registry internal/resource internal/series internal/store", "which policies apply to a request follows from stored policies, bindings and params"},
	{"internal/admission/policy/policytest", "internal/authn internal/builtin internal/registry internal/resource internal/store internal/store/memlog internal/store/stores internal/wire", "plugins of policies are tested in a registry"},
	{"internal/admission/policy/mutating", "internal/admission/match internal/admission/policy internal/expression internal/patch internal/registry internal/store", "expressions make patches, which change the object of a request"},
	{"internal/admission/policy/validating", "internal/admission/match internal/admission/policy internal/expression internal/registry internal/store", "expressions decide on a request"},
	{"internal/admission", "internal/admission/addresses internal/admission/defaultclass internal/admission/eventlimit internal/admission/imagepolicy internal/admission/manifest internal/admission/match internal/admission/noderestriction internal/admission/pluginconfig internal/admission/policy internal/admission/policy/mutating internal/admission/policy/validating internal/admission/quota internal/admission/webhook internal/authn internal/authz internal/authz/impersonation internal/authz/rbac internal/builtin/certificates internal/builtin/check internal/builtin/podspec internal/crd internal/derived internal/kubeversion internal/registry internal/resource internal/store internal/webhook internal/wire", "the chain of plugins that the verbs call"},
	{"internal/startup", "internal/registry internal/resource internal/store internal/wire", "first objects are written with the verbs, and compared with the stored bytes"},
	{"internal/peers", "internal/registry internal/resource internal/startup internal/statusapi internal/store internal/wire", "servers show themselves to each other with the verbs, and keep their addresses beside the objects"},
	{"internal/crd", "internal/builtin internal/builtin/apiextensions internal/celenv internal/derived internal/expression internal/fairness internal/regex internal/resource internal/store internal/tracing internal/unexported internal/uuid internal/webhook internal/wire", "stored definitions determine the types of custom resources; they share Scale with the built-in kinds"},
	{"internal/controller", "internal/admission/addresses internal/admission/quota internal/aggregation internal/authn internal/builtin/certificates internal/clock internal/crd internal/exposition internal/expression internal/openapi internal/registry internal/resource internal/startup internal/store internal/wire", "the loops use the verbs, as clients do, and read the store's state; they know no HTTP"},
	{"internal/deflate", "", "compressed pieces are bytes"},
	{"internal/forkapi", "", "server and command exchange messages"},
	{"internal/fairness", "", "it counts seats and bytes, and knows nothing of HTTP"},
	{"internal/flowschema", "internal/authz internal/builtin/flowcontrol internal/derived internal/fairness internal/store", "stored schemas and levels determine the flow of a request; the mandatory ones are those of their kinds"},
	{"internal/uuid", "", "random identifiers depend on no other package"},
	{"internal/atomicfile", "", "writing a file depends on no other package"},
	{"internal/dirlock", "", "a lock depends on no other package"},
	{"internal/privatedir", "", "access to a directory depends on no other package"},
	{"internal/netaddr", "", "the meaning of an address depends on no other package"},
	{"internal/webhook", "internal/http2client internal/netaddr internal/store internal/tracing", "a client of a remote service finds it by its URL or as a stored Service"},
	{"internal/webhook/webhooktest", "", "a webhook of tests speaks the protocol alone"},
	{"internal/reload", "", "reloading a file depends on no other package"},
	{"internal/authn", "internal/reload", "credentials come from files that change"},
	{"internal/authn/webhook", "internal/authn internal/reload internal/webhook", "a kind of tokens; the kubeconfig of the service is a file that changes"},
	{"internal/authn/oidc", "internal/authn internal/celenv internal/expression", "an issuer's tokens are mapped to users"},
	{"internal/authn/oidc/oidctest", "", "an issuer for tests depends on no other package"},
	{"internal/authn/issuers", "internal/authn internal/authn/oidc internal/reload", "a file that changes lists the issuers"},
	{"internal/satoken", "internal/atomicfile internal/authn internal/reload internal/uuid", "tokens are signed with keys kept in files that change, and give the authenticator the user"},
	{"internal/virtual", "internal/authn internal/authz internal/registry internal/resource internal/satoken", "resources that are never stored are served by the authenticator, the authorizer and the token signer"},
	{"internal/authz", "internal/authn", "permissions depend on the user"},
	{"internal/authz/node", "internal/authn internal/authz internal/derived internal/store", "what a node may read follows from stored Pods and volumes"},
	{"internal/audit", "internal/authn internal/authz internal/jsontext internal/webhook", "events tell who did what; policies decide by the attributes of authorization"},
	{"internal/authz/rbac", "internal/authn internal/authz internal/derived internal/store", "stored roles and bindings determine permissions"},
	{"internal/authz/abac", "internal/authn internal/authz", "a policy file says what users may do"},
	{"internal/authz/config", "internal/authn internal/authz internal/authz/webhook internal/reload", "a configuration names the authorizers; its file changes"},
	{"internal/authz/webhook", "internal/authn internal/authz internal/celenv internal/expression internal/webhook", "a remote service is one authorizer among others"},
	{"internal/authz/impersonation", "internal/authn internal/authz", "impersonation is a question to the authorizer"},
	{"internal/pki", "internal/atomicfile", "certificates are kept in files"},
	{"internal/kubeconfig", "internal/atomicfile", "a kubeconfig is a file"},
	{"internal/http2", "", "the protocol depends on no other package"},
	{"internal/http2client", "", "the protocol depends on no other package"},
	{"internal/exposition", "", "the text format of metrics depends on no other package"},
	{"internal/tracing", "", "spans depend on contexts alone"},
	{"cmd/tidemark/internal/collector", "internal/admission/pluginconfig", "where spans go is read like other configurations"},
	{"internal/series", "", "the limit of a metric's series depends on no other package"},
	{"internal/upgrade", "", "a request is forwarded without knowing what it is about"},
	{"internal/kubelet", "internal/netaddr internal/reload internal/upgrade", "a kubelet is an address and its certificates, which come from files"},
	{"internal/kubelet/kubelettest", "", "a kubelet of tests speaks the protocols alone"},
	{"internal/connect", "internal/kubelet internal/upgrade", "a connection goes to a kubelet or a backend, of a user who has the right to it"},
	{"internal/clock", "", "a clock depends on no other package"},
	{"internal/inprocess", "", "a transport calls any handler"},
	{"internal/serving", "internal/authn internal/http2 internal/reload", "the listener passes certificates to the authenticator, and connections to the protocol; its own certificates come from files that change"},
	{"internal/httpapi", "internal/aggregation internal/apply internal/audit internal/authn internal/authz internal/authz/impersonation internal/changes internal/connect internal/deflate internal/discovery internal/exposition internal/fairness internal/fault internal/features internal/flowschema internal/history internal/kubelet internal/kubeversion internal/registry internal/resource internal/store internal/store/notify internal/tracing internal/upgrade internal/uuid internal/wire", "HTTP is the outermost layer; lists read the store's objects"},
	{"internal/upgrade", "", "a request is forwarded without knowing what it is about"},
	{"internal/aggregation", "internal/authn internal/discovery internal/exposition internal/fairness internal/resource internal/store internal/upgrade internal/webhook", "stored APIServices name the extension servers, whose documents are merged with those of the server"},
	{"internal/fault", "", "which requests fail on purpose depends on the rules and the requests alone"},
	{"internal/control", "internal/fault internal/uuid", "the control API knows the worlds of a server by an interface"},
	{"cmd/tidemark/internal/progress", "", "printing progress depends on no other package"},
	{"cmd/tidemark/internal/bench", "cmd/tidemark/internal/clientconfig cmd/tidemark/internal/progress", "a server is measured through its API alone"},
	{"cmd/tidemark/internal/timeline", "cmd/tidemark/internal/progress internal/apply internal/changes internal/serverclient", "the past is read through the API of a server, and compared with the schemas of the kinds"},
	{"cmd/tidemark/internal/assets", "internal/atomicfile", "archives are files with an index"},
	{"cmd/tidemark/internal/cluster", "cmd/tidemark/internal/progress internal/atomicfile internal/dirlock internal/kubeconfig internal/pki", "a cluster is processes, the files that they share, and a few requests"},
	{"cmd/tidemark/internal/etcdstub", "", "a stand-in for etcd depends on no other package"},
	{"cmd/tidemark/internal/conformance", "cmd/tidemark/internal/progress resourceversion", "a server is checked through its API alone"},
	{"resourceversion", "", "clients of any server use it, without the rest of the module"},
	{"consistentlist", "resourceversion", "clients of any server use it, without the rest of the module"},
	{"etcdstore", "internal/atomicfile internal/dirlock internal/encryption internal/privatedir internal/storage internal/store internal/store/etcdlog internal/etcdvalue", "a cluster holds the objects; only programs that import it link the client of etcd"},
	{"datadir", "internal/atomicfile internal/dirlock internal/privatedir internal/storage internal/store internal/store/pebblelog", "a data directory holds a durable log; only programs that import it link Pebble"},
}

// forbidden lists packages that a package must not depend on, directly or indirectly.
var forbidden = []importRule{
	{"", "github.com/cockroachdb/pebble", "a server in memory must not link Pebble"},
	{"", "go.etcd.io/etcd", "only programs that keep their objects in etcd link its client"},
	{"internal/registry", "net/http", "the verbs know no HTTP"},
	{"internal/store", "k8s.io encoding/json net/http", "the store knows no Kubernetes and no JSON"},
	{"internal/store/pebblelog", "k8s.io", "the store knows no Kubernetes"},
	{"internal/store/etcdlog", "k8s.io", "the store knows no Kubernetes: a codec does"},
	{"consistentlist", "k8s.io/client-go k8s.io/api", "a list works with any client, and links none"},
}

// standardOnly lists packages that depend on nothing but the standard library.
var standardOnly = []importRule{
	{of: "resourceversion", why: "programs that compare versions must not link a client"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// TestImports holds the rules, and finds rules that no longer match anything.
func TestImports(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// reach returns the packages that a package links, or only those that it imports itself where
// libraries may link more.
func (p listed) reach(direct bool) []string {
	if direct {
		return p.Imports
	}
	return p.Deps
}

func list(t *testing.T) []listed {
	t.Helper()
	all, err := listOnce()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// listOnce reads all packages, which takes about a second.
var listOnce = sync.OnceValues(func() (all []listed, err error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
})
