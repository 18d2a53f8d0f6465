package aggregation

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Collection is the collection of APIServices.
const Collection = "apiservices.apiregistration.k8s.io"

// Managed is the label of the APIServices that the server itself makes. Its value is OnStart or Always.
const Managed = "kube-aggregator.kubernetes.io/automanaged"

// The values of the label Managed: APIServices of built-in kinds are restored at each start, those of custom resources always.
const (
	OnStart = "onstart"
	Always  = "true"
)

// The priorities of the APIServices of custom resources.
const (
	CustomGroupPriority   = 1000
	CustomVersionPriority = 100
)

// groupVersion names a version of a group.
type groupVersion struct{ group, version string }

// apiService is the name of the APIService.
func (gv groupVersion) apiService() string { return gv.version + "." + gv.group }

// String returns the form of apiVersion.
func (gv groupVersion) String() string { return gv.group + "/" + gv.version }

// serviceKey names a port of a Service.
type serviceKey struct {
	namespace, name string
	port            int32
}

// key is the key of the Service in its collection.
func (k serviceKey) key() string { return k.namespace + "/" + k.name }

// entry is the part of an APIService that routing and discovery depend on.
type entry struct {
	groupVersion
	groupPriority, versionPriority int32
	remote                         bool // it has a Service
	service                        serviceKey
	ca                             string
	insecure                       bool
}

// read is an APIService as it was read.
type read struct {
	of *store.Object
	entry
	condition condition // Available
}

// readService reads an APIService.
func readService(o *store.Object) (read, error) {
	var s apiregistrationv1.APIService
	if err := json.Unmarshal(o.Bytes(), &s); err != nil {
		return read{}, err
	}
	made := read{of: o, entry: entryOf(&s)}
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			made.condition = condition{c.Status, c.Reason, c.Message}
		}
	}
	return made, nil
}

// entryOf returns the entry of an APIService.
func entryOf(s *apiregistrationv1.APIService) entry {
	made := entry{
		groupVersion: groupVersion{s.Spec.Group, s.Spec.Version}, groupPriority: s.Spec.GroupPriorityMinimum, versionPriority: s.Spec.VersionPriority,
	}
	if to := s.Spec.Service; to != nil {
		made.remote, made.insecure, made.ca = true, s.Spec.InsecureSkipTLSVerify, string(s.Spec.CABundle)
		made.service = serviceKey{to.Namespace, to.Name, 443}
		if to.Port != nil {
			made.service.port = *to.Port
		}
	}
	return made
}

// Table is the routing table of the stored APIServices. It is immutable.
type Table struct {
	services map[string]read // by name
	remote   map[groupVersion]*Backend
}

// emptyTable is the table before the first one.
var emptyTable = &Table{}

// backend returns the backend of a group and version, nil if the server itself serves them.
func (t *Table) backend(gv groupVersion) *Backend { return t.remote[gv] }

// sorted returns the backends in the order of the names of their APIServices.
func (t *Table) sorted() []*Backend {
	return slices.SortedFunc(maps.Values(t.remote), func(a, b *Backend) int { return strings.Compare(a.name, b.name) })
}

// ranked is a version in an order of discovery.
type ranked struct {
	name                           string // of its APIService
	version                        string
	groupPriority, versionPriority int32
}

// compareVersions orders the versions of a group, the preferred one first.
func compareVersions(a, b ranked) int {
	return cmp.Or(cmp.Compare(b.versionPriority, a.versionPriority), version.CompareKubeAwareVersionStrings(b.version, a.version))
}

// place is the place of a group among the others: that of the version with the highest priority.
type place struct {
	priority int32
	name     string // of the first APIService with that priority
}

func placeOf(versions []ranked) (p place) {
	for _, v := range versions {
		if v.groupPriority > p.priority || v.groupPriority == p.priority && v.name < p.name {
			p = place{v.groupPriority, v.name}
		}
	}
	return p
}

// compare orders groups.
func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(o.priority, p.priority), strings.Compare(p.name, o.name))
}

// sameSpec reports whether two APIServices lead to the same backend.
func sameSpec(a, b *entry) bool {
	return a.groupVersion == b.groupVersion && a.remote == b.remote && a.service == b.service && a.insecure == b.insecure && a.ca == b.ca
}
