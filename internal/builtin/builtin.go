// Package builtin has the kinds that every server serves, those of Kubernetes v1.37, as rows of data.
// There is one file for each API group. A row has only the fields in which its kind differs from most:
// complete fills in the rest. A catalog has the kinds of one version of Kubernetes with its feature gates.
//
// The functions of a row (names, defaults, conversions) are in the file of its group, or in a file of
// their own if they are long.
package builtin

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/columns"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared"
	"github.com/tidemark-dev/tidemark/internal/builtin/gated"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Catalog returns the built-in kinds of the newest version, with the groups in the order in which discovery
// shows them.
func Catalog() *resource.Catalog { return For(features.Default()) }

// For returns the kinds of a version with its feature gates. A catalog is made once for each profile, by the first call,
// and shared.
func For(p *features.Profile) *resource.Catalog {
	made, known := catalogs.Load(p)
	if !known {
		made, _ = catalogs.LoadOrStore(p, sync.OnceValue(func() *resource.Catalog { return build(p) }))
	}
	return made.(func() *resource.Catalog)()
}

// catalogs are the functions that return the catalogs, by *features.Profile. There is one Profile for each choice of a
// version and of gates in the process.
var catalogs sync.Map

func build(p *features.Profile) *resource.Catalog {
	core := coreGroup(p)
	types := core.Versions[0].Types
	event := types[slices.IndexFunc(types, func(t *resource.Type) bool { return t.Resource == "events" })]
	groups := []resource.Group{
		core,
		apiregistrationGroup(),
		appsGroup(p),
		eventsGroup(event),
		authenticationGroup(),
		authorizationGroup(),
		autoscalingGroup(p),
		batchGroup(),
		certificatesGroup(),
		networkingGroup(),
		policyGroup(),
		rbacGroup(),
		storageGroup(p),
		admissionregistrationGroup(),
		apiextensionsGroup(),
		schedulingGroup(),
		coordinationGroup(),
		nodeGroup(),
		discoveryGroup(),
		resourceGroup(),
		flowcontrolGroup(),
		storagemigrationGroup(),
		tidemarkGroup(),
	}
	groups = served(groups, p)
	relate(groups)
	addColumns(groups)
	addRules(groups, p)
	return resource.NewCatalog(groups)
}

// served returns the groups without the kinds that the profile does not have. A version, and a group, without any is not
// served.
func served(groups []resource.Group, p *features.Profile) []resource.Group {
	for i := range groups {
		g := &groups[i]
		for j := range g.Versions {
			v := &g.Versions[j]
			v.Types = slices.DeleteFunc(v.Types, func(t *resource.Type) bool { return !p.Serves(t.GroupVersion().String(), t.Kind) })
		}
		g.Versions = slices.DeleteFunc(g.Versions, func(v resource.Version) bool { return len(v.Types) == 0 })
	}
	return slices.DeleteFunc(groups, func(g resource.Group) bool { return len(g.Versions) == 0 })
}

// addRules adds the rules that follow from the Go types: those of disabled fields, and the declared ones.
func addRules(groups []resource.Group, p *features.Profile) {
	fields := gated.New(p)
	rules := declared.Rules{ScaleToZero: p.Enabled(features.ScaleToZero)}
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, t := range v.Types {
				if t.Collection != "" {
					t.Strategy.Disabled = fields.Clear
				}
				if g.Name != "apiextensions.k8s.io" && g.Name != "apiregistration.k8s.io" {
					t.Strategy.Declared = rules.Join
				}
			}
		}
	}
}

// addColumns gives each kind that is read the columns of its stored version.
func addColumns(groups []resource.Group) {
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, t := range v.Types {
				if t.Collection != "" || t.Allows("list") {
					t.Display.Columns = columns.Of(t.StoredVersion().New())
				}
			}
		}
	}
}

// version is a served version, its types sorted by Resource.
type version struct {
	name  string
	types []resource.Type
}

// group completes the rows of a group. The types of the result are those of its
// arguments, so the Conversion of a row may point to another row.
func group(name string, versions ...version) resource.Group {
	g := resource.Group{Name: name, Versions: make([]resource.Version, len(versions))}
	for i, v := range versions {
		types := make([]*resource.Type, len(v.types))
		for j := range v.types {
			types[j] = &v.types[j]
			complete(types[j], name, v.name)
		}
		g.Versions[i] = resource.Version{Name: v.name, Types: types}
	}
	return g
}

// complete fills in the fields of a row that nearly all kinds share. A row that names its verbs
// also sets its collection if it is stored.
func complete(t *resource.Type, group, version string) {
	t.Group, t.Version = group, version
	t.Singular = strings.ToLower(t.Kind)
	if t.Verbs == nil {
		t.Verbs = everyVerb
		if t.Collection == "" {
			t.Collection = t.GroupResource().String()
		}
	}
	if m := &t.Strategy.Metadata; m.ValidateName == nil {
		m.ValidateName = validation.NameIsDNSSubdomain
	}
	for i := range t.Subresources {
		k := &t.Subresources[i].Kind
		if b := t.Subresources[i].Exchange; b != nil {
			*k = b.GroupVersionKind()
		}
		if k.Kind == "" {
			k.Kind = t.Kind
		}
		if k.Version == "" {
			k.Group, k.Version = group, version
		}
	}
}

// The sets of verbs, each sorted.
var (
	everyVerb           = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	notDeleteCollection = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	getList             = []string{"get", "list"}
	getPatchUpdate      = []string{"get", "patch", "update"}
	createGet           = []string{"create", "get"}
	onlyCreate          = []string{"create"}
	onlyGet             = []string{"get"}
	onlyUpdate          = []string{"update"}
	proxyVerbs          = []string{"create", "delete", "get", "patch", "update"}
)

// The categories: names for the kinds of many resources at once.
var (
	inAll           = []string{"all"}
	inAPIExtensions = []string{"api-extensions"}
)

// status is the subresource "status" of kinds that validate only its metadata.
var status = resource.Subresource{Name: "status", Verbs: getPatchUpdate}

// statusWith returns the subresource "status" with a validation of its own.
func statusWith(validate func(ctx context.Context, o, old runtime.Object) field.ErrorList) resource.Subresource {
	s := status
	s.Validate = validate
	return s
}

// statusBy returns the subresource "status" with a validation of its own, and a function that sets
// other fields with the status.
func statusBy(set func(o, sent runtime.Object) error, validate func(ctx context.Context, o, old runtime.Object) field.ErrorList) resource.Subresource {
	s := statusWith(validate)
	s.Set = set
	return s
}

// proxy returns the subresource "proxy" for options of type T.
func proxy[T any, P pointerTo[T]](connect func(runtime.Object, url.Values) (string, error)) resource.Subresource {
	return connection[T, P]("proxy", proxyVerbs, connect)
}

// The values that many strategies share.
var (
	// counted is a generation that counts changes of the spec.
	counted = resource.Generation{Initial: 1, CountChanges: true}
	// countedExactly also counts an empty list instead of none.
	countedExactly = resource.Generation{Initial: 1, CountChanges: true, Exact: true}
	// returnsObject is a deletion whose response is the object.
	returnsObject = resource.Deletion{ReturnsObject: true}
	// recheckUpdate is for kinds whose validation of an update does not check the
	// metadata as that of a new object.
	recheckUpdate = resource.MetadataRules{Recheck: resource.RecheckUpdate}
	// recheckNew is for kinds whose validation of an update does not compare the metadata
	// with the stored one.
	recheckNew = resource.MetadataRules{Recheck: resource.RecheckNew}
	// statusAlone is for kinds whose subresource "status" cannot change metadata.
	statusAlone = resource.StatusRules{Fixed: resource.AllMetadata}
)

// notSupported is the error of most kinds with selectable fields for any other field.
const notSupported = "field label not supported: %s"

// fields returns selectable fields whose names are their paths. The value is empty if the object
// lacks the field.
func fields(names ...string) []resource.Field {
	out := make([]resource.Field, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

// object returns a new object of a kind.
func object[T any, P interface {
	*T
	runtime.Object
}]() runtime.Object {
	return P(new(T))
}

// longName validates names with a limit that counts bytes, not characters.
func longName(name string, prefix bool) []string {
	if prefix {
		return validation.NameIsDNSSubdomain(name, true)
	}
	return content.IsDNS1123Subdomain(name)
}

// pathSegment validates names that only have to be a path segment of a URL.
func pathSegment(name string, _ bool) []string { return content.IsPathSegmentName(name) }
