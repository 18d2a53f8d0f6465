package features

import (
	"cmp"
	"slices"
	"strings"
)

// API is a kind, or a field of a type, in the versions of Kubernetes.
type API struct {
	// Version is the group and version of a kind, "apps/v1"; for a field, that of the package in k8s.io/api, "core/v1".
	Version string
	// Name is the kind; for a field, the type and the name in JSON: "PodSpec.hostname".
	Name string
	// Since is the first minor version that has it; zero: it is as old as Oldest, or older.
	Since uint8
	// Until is the last minor version that has it; zero: it is not removed.
	Until uint8
	// Gates are the feature gates that it needs, separated by commas.
	Gates string
	// Default is the default of a field as its tag has it.
	Default string
}

func (a *API) gates() []string {
	if a.Gates == "" {
		return nil
	}
	return strings.Split(a.Gates, ",")
}

// compare orders rows as the tables are.
func (a API) compare(b API) int {
	return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Name, b.Name))
}

func find(table []API, version, name string) *API {
	i, ok := slices.BinarySearchFunc(table, API{Version: version, Name: name}, API.compare)
	if !ok {
		return nil
	}
	return &table[i]
}

// Serves reports whether the version of the profile has a kind that the server knows, and all gates of the kind are
// enabled. A kind that is not in k8s.io/api is as old as Kubernetes.
func (p *Profile) Serves(groupVersion, kind string) bool {
	k := find(kinds, groupVersion, kind)
	return k == nil || int(k.Since) <= p.Emulated && (k.Until == 0 || p.Emulated <= int(k.Until)) && p.missing(k) == ""
}

// Disabled returns the first disabled gate of a field, empty if there is none. As in kube-apiserver, a field without a gate
// is known whatever the version.
func (p *Profile) Disabled(version, typ, field string) (gate string) {
	f := find(fields, version, typ+"."+field)
	if f == nil {
		return ""
	}
	return p.missing(f)
}

// Dropped returns the disabled gates of fields, sorted.
func (p *Profile) Dropped() (names []string) {
	for i := range fields {
		if gate := p.missing(&fields[i]); gate != "" {
			names = append(names, gate)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (p *Profile) missing(a *API) string {
	for _, g := range a.gates() {
		if !p.Enabled(g) {
			return g
		}
	}
	return ""
}
