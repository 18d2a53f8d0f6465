package etcdvalue

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// form is how the values of a collection are encoded.
type form int

const (
	// inProtobuf is the message of the kind in Kubernetes' envelope.
	inProtobuf form = iota
	// inJSON is JSON and a newline.
	inJSON
	// inDefinition is JSON and a newline, in the version v1beta1 of CustomResourceDefinitions,
	// which has other members.
	inDefinition
)

// kind is how a built-in collection is stored.
type kind struct {
	// collection is its name in the store.
	collection string
	// path is the prefix of its keys, below the root: "services/specs".
	path string
	// typ is the version that the store holds. It has no Conversion.
	typ *resource.Type
	// version is the one that values name.
	version schema.GroupVersion
	form    form
	// alike are more versions that values may name. Their messages and their JSON differ from
	// those of typ in no field that both have.
	alike []string
}

// row has the fields in which a collection differs from others.
type row struct {
	path    string // empty: the name of the resource
	version string // empty: that of the store
	form    form
	alike   []string // versions
}

// rows has the exceptions, and the versions of earlier releases that are read as they are. All
// other collections are stored under the name of their resource, without the group, as protobuf
// in the version that the store holds.
var rows = map[string]row{
	"endpoints":              {path: "services/endpoints"},
	"nodes":                  {path: "minions"},
	"replicationcontrollers": {path: "controllers"},
	"services":               {path: "services/specs"},

	"apiservices.apiregistration.k8s.io":             {path: "apiregistration.k8s.io/apiservices", form: inJSON, alike: []string{"v1beta1"}},
	"customresourcedefinitions.apiextensions.k8s.io": {path: "apiextensions.k8s.io/customresourcedefinitions", version: "v1beta1", form: inDefinition},

	// v1 is new in 1.37: kube-apiserver stores a version that 1.36 can read.
	"clustertrustbundles.certificates.k8s.io":          {version: "v1beta1", alike: []string{"v1", "v1alpha1"}},
	"devicetaintrules.resource.k8s.io":                 {version: "v1beta2", alike: []string{"v1", "v1alpha3"}},
	"podcertificaterequests.certificates.k8s.io":       {version: "v1beta1", alike: []string{"v1"}},
	"storageversionmigrations.storagemigration.k8s.io": {version: "v1beta1", alike: []string{"v1"}},

	"mutatingadmissionpolicies.admissionregistration.k8s.io":       {alike: []string{"v1beta1", "v1alpha1"}},
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io": {alike: []string{"v1beta1"}},

	"controllerrevisions.apps":                                       {alike: []string{"v1beta1", "v1beta2"}},
	"cronjobs.batch":                                                 {alike: []string{"v1beta1"}},
	"csidrivers.storage.k8s.io":                                      {alike: []string{"v1beta1"}},
	"csinodes.storage.k8s.io":                                        {alike: []string{"v1beta1"}},
	"csistoragecapacities.storage.k8s.io":                            {alike: []string{"v1beta1", "v1alpha1"}},
	"clusterrolebindings.rbac.authorization.k8s.io":                  {alike: []string{"v1beta1"}},
	"clusterroles.rbac.authorization.k8s.io":                         {alike: []string{"v1beta1"}},
	"ingressclasses.networking.k8s.io":                               {alike: []string{"v1beta1"}},
	"ingresses.networking.k8s.io":                                    {path: "ingress"},
	"ipaddresses.networking.k8s.io":                                  {alike: []string{"v1beta1"}},
	"leases.coordination.k8s.io":                                     {alike: []string{"v1beta1"}},
	"poddisruptionbudgets.policy":                                    {alike: []string{"v1beta1"}},
	"priorityclasses.scheduling.k8s.io":                              {alike: []string{"v1beta1"}},
	"rolebindings.rbac.authorization.k8s.io":                         {alike: []string{"v1beta1"}},
	"roles.rbac.authorization.k8s.io":                                {alike: []string{"v1beta1"}},
	"runtimeclasses.node.k8s.io":                                     {alike: []string{"v1beta1"}},
	"servicecidrs.networking.k8s.io":                                 {alike: []string{"v1beta1"}},
	"storageclasses.storage.k8s.io":                                  {alike: []string{"v1beta1"}},
	"validatingadmissionpolicies.admissionregistration.k8s.io":       {alike: []string{"v1beta1", "v1alpha1"}},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": {alike: []string{"v1beta1"}},
	"volumeattachments.storage.k8s.io":                               {alike: []string{"v1beta1", "v1alpha1"}},
	"volumeattributesclasses.storage.k8s.io":                         {alike: []string{"v1beta1", "v1alpha1"}},
	"flowschemas.flowcontrol.apiserver.k8s.io":                       {alike: []string{"v1beta3", "v1beta2", "v1beta1"}},
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io":       {alike: []string{"v1beta3"}},
	"daemonsets.apps":                                                {alike: []string{"v1beta2"}},
	"deployments.apps":                                               {alike: []string{"v1beta2"}},
	"replicasets.apps":                                               {alike: []string{"v1beta2"}},
	"statefulsets.apps":                                              {alike: []string{"v1beta2"}},
	"deviceclasses.resource.k8s.io":                                  {alike: []string{"v1beta2", "v1beta1"}},
	"resourceclaims.resource.k8s.io":                                 {alike: []string{"v1beta2"}},
	"resourceclaimtemplates.resource.k8s.io":                         {alike: []string{"v1beta2"}},
	"resourceslices.resource.k8s.io":                                 {alike: []string{"v1beta2"}},
}

// masterLeases is the collection of the addresses of servers. They are Endpoints without a name, and are
// not served.
const masterLeases = "masterleases"

// ranges is the collection of kube-apiserver's allocation bitmaps. They are not served.
const ranges = "ranges"

var rangeAllocation = &resource.Type{
	Names: resource.Names{Version: "v1", Kind: "RangeAllocation"},
	New:   func() runtime.Object { return new(corev1.RangeAllocation) },
}

// table has the built-in collections by their name and by their path.
type table struct{ byName, byPath map[string]*kind }

// builtins makes the table once. It depends on the program alone.
var builtins = sync.OnceValue(func() table {
	t := table{map[string]*kind{}, map[string]*kind{}}
	for typ := range builtin.Catalog().Types() {
		if typ.Collection == "" || typ.Conversion != nil {
			continue
		}
		r := rows[typ.Collection]
		k := &kind{collection: typ.Collection, path: r.path, typ: typ, version: typ.GroupVersion(), form: r.form, alike: r.alike}
		if k.path == "" {
			k.path = typ.Resource
		}
		if r.version != "" {
			k.version.Version = r.version
		}
		t.byName[k.collection], t.byPath[k.path] = k, k
	}
	endpoints := builtin.Catalog().Lookup("", "v1", "endpoints")
	m := &kind{collection: masterLeases, path: masterLeases, typ: endpoints, version: endpoints.GroupVersion()}
	t.byName[m.collection], t.byPath[m.path] = m, m
	a := &kind{collection: ranges, path: ranges, typ: rangeAllocation, version: rangeAllocation.GroupVersion()}
	t.byName[a.collection], t.byPath[a.path] = a, a
	return t
})
