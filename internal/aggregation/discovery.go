package aggregation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/discovery"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Merged are the discovery documents of the server itself with those of extension servers. They are immutable.
type Merged struct {
	own        *discovery.Documents
	table      *Table
	generation uint64

	groups     []mergedGroup // in the order of the legacy document
	aggregated func() discovery.Document
	list       func() discovery.Document
	index      map[string]int // of groups
}

// mergedGroup is a group in the order of discovery.
type mergedGroup struct {
	name     string
	place    place
	versions []ranked
	own      *resource.Group // nil: all versions are those of extension servers
	item     func() []byte   // of the aggregated document of the server itself
}

// Merge returns the documents of the server with those of extension servers; nil: the server's own are
// complete and in their order, as for a nil Aggregator.
func (a *Aggregator) Merge(own *discovery.Documents) *Merged {
	if a == nil {
		return nil
	}
	t, generation := a.table.Load(), a.generation.Load()
	m := a.merged.Load()
	if m == nil || m.own != own || m.table != t || m.generation != generation {
		m = a.merge(own, t, generation, m)
		a.merged.Store(m)
	}
	if m.groups == nil {
		return nil
	}
	return m
}

// merge makes the documents. Before are those made last, or nil.
func (a *Aggregator) merge(own *discovery.Documents, t *Table, generation uint64, before *Merged) *Merged {
	m := &Merged{own: own, table: t, generation: generation}
	groups, asOwn := arrange(own, t)
	if asOwn && len(t.remote) == 0 {
		return m
	}
	m.groups, m.index = groups, make(map[string]int, len(groups))
	for i := range groups {
		m.index[groups[i].name] = i
	}
	m.list, m.aggregated = sync.OnceValue(m.groupList), sync.OnceValue(m.aggregate)
	if before != nil && before.groups != nil && before.own == own && sameArrangement(before.groups, groups) {
		if m.list = before.list; before.generation == generation { // a condition changed, or a backend that serves the same
			m.aggregated = before.aggregated
		}
	}
	return m
}

// arrange returns the groups in the order of discovery. AsOwn reports whether that is the order of the server's own documents.
func arrange(own *discovery.Documents, t *Table) (all []mergedGroup, asOwn bool) {
	remote := map[string][]*Backend{}
	for gv, b := range t.remote {
		remote[gv.group] = append(remote[gv.group], b)
	}
	last := place{priority: math.MaxInt32}
	for g, item := range own.Groups() {
		if g.Name == "" {
			continue
		}
		m := mergedGroup{name: g.Name, own: g, item: item}
		stored := false
		for _, v := range g.Versions {
			gv := groupVersion{g.Name, v.Name}
			if t.remote[gv] != nil {
				continue
			}
			r := ranked{name: gv.apiService(), version: v.Name, groupPriority: CustomGroupPriority, versionPriority: CustomVersionPriority}
			if s, ok := t.services[r.name]; ok {
				stored, r.groupPriority, r.versionPriority = true, s.groupPriority, s.versionPriority
			} else if v.Types[0].Custom == nil { // deleted, or the group of APIServices, which has none
				r.groupPriority, r.versionPriority = last.priority, int32(len(g.Versions))
			} else {
				stored = true
			}
			m.versions = append(m.versions, r)
		}
		m.add(remote[g.Name], t)
		delete(remote, g.Name)
		if m.place = placeOf(m.versions); !stored && len(m.versions) > 0 {
			m.place = last // it stays behind the group before
		}
		last = m.place
		all = append(all, m)
	}
	asOwn = len(remote) == 0 && slices.IsSortedFunc(all, func(x, y mergedGroup) int { return x.place.compare(y.place) })
	for name, backends := range remote {
		m := mergedGroup{name: name}
		m.add(backends, t)
		m.place = placeOf(m.versions)
		all = append(all, m)
	}
	for i := range all {
		asOwn = asOwn && slices.IsSortedFunc(all[i].versions, compareVersions)
		slices.SortFunc(all[i].versions, compareVersions)
	}
	slices.SortStableFunc(all, func(x, y mergedGroup) int { return x.place.compare(y.place) })
	return all, asOwn
}

// add adds the versions of extension servers.
func (m *mergedGroup) add(backends []*Backend, t *Table) {
	for _, b := range backends {
		s := t.services[b.name]
		m.versions = append(m.versions, ranked{b.name, b.version, s.groupPriority, s.versionPriority})
	}
}

func sameArrangement(a, b []mergedGroup) bool {
	return slices.EqualFunc(a, b, func(x, y mergedGroup) bool { return x.name == y.name && slices.Equal(x.versions, y.versions) })
}

// group returns the legacy form of a group.
func (g *mergedGroup) group() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name, Versions: []metav1.GroupVersionForDiscovery{}}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v.version, Version: v.version})
	}
	if len(out.Versions) > 0 {
		out.PreferredVersion = out.Versions[0]
	}
	return out
}

// groupList is GET /apis.
func (m *Merged) groupList() discovery.Document {
	doc := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for i := range m.groups {
		doc.Groups = append(doc.Groups, m.groups[i].group())
	}
	return discovery.Document{Body: append(marshal(doc), '\n')}
}

// aggregate is GET /apis in the aggregated form. The items of groups that the server itself serves are those of its own
// document. Groups of one priority are ordered by their names.
func (m *Merged) aggregate() discovery.Document {
	order := make([]*mergedGroup, len(m.groups))
	for i := range m.groups {
		order[i] = &m.groups[i]
	}
	slices.SortStableFunc(order, func(x, y *mergedGroup) int {
		return cmp.Or(cmp.Compare(y.place.priority, x.place.priority), strings.Compare(x.name, y.name))
	})
	var items [][]byte
	for _, g := range order {
		items = append(items, m.item(g))
	}
	return discovery.Aggregate(items)
}

// item is a group in the aggregated form.
func (m *Merged) item(g *mergedGroup) []byte {
	remote := slices.ContainsFunc(g.versions, func(v ranked) bool { return m.table.remote[groupVersion{g.name, v.version}] != nil })
	if g.own != nil && !remote && slices.EqualFunc(g.versions, g.own.Versions, func(a ranked, b resource.Version) bool { return a.version == b.Name }) {
		return g.item()
	}
	var own apidiscovery.APIGroupDiscovery
	if g.own != nil {
		if err := json.Unmarshal(g.item(), &own); err != nil { // the server's own document
			panic(fmt.Sprintf("aggregation: %v", err))
		}
	}
	made := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		gv := groupVersion{g.name, v.version}
		b := m.table.remote[gv]
		i := slices.IndexFunc(own.Versions, func(o apidiscovery.APIVersionDiscovery) bool { return o.Version == v.version })
		switch {
		case b == nil && i >= 0:
			made.Versions = append(made.Versions, own.Versions[i])
			continue
		case b == nil:
			continue
		}
		if found := b.source.version(gv); found != nil {
			made.Versions = append(made.Versions, *found)
		} else {
			made.Versions = append(made.Versions, apidiscovery.APIVersionDiscovery{Version: v.version, Freshness: apidiscovery.DiscoveryFreshnessStale})
		}
	}
	return marshal(made)
}

// APIs is GET /apis.
func (m *Merged) APIs() discovery.Document { return m.list() }

// AggregatedAPIs is GET /apis in the aggregated form.
func (m *Merged) AggregatedAPIs() discovery.Document { return m.aggregated() }

// Group is GET /apis/GROUP; false if there is no such group.
func (m *Merged) Group(name string) (discovery.Document, bool) {
	i, ok := m.index[name]
	if !ok {
		return discovery.Document{}, false
	}
	doc := m.groups[i].group()
	doc.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return discovery.Document{Body: append(marshal(doc), '\n')}, true
}

// Paths returns the paths of extension servers, for the index of paths.
func (m *Merged) Paths() []string {
	var all []string
	for gv := range m.table.remote {
		all = append(all, "/apis/"+gv.group, "/apis/"+gv.String())
	}
	return all
}

// marshal encodes a document. It cannot fail: documents consist of strings, booleans and lists.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("aggregation: " + err.Error())
	}
	return b
}
