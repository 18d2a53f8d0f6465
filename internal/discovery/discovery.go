// Package discovery makes the discovery documents of a server: /api, /apis and the paths
// below them, as one document for each group and version and in the aggregated form.
//
// A document is a pure function of a resource.Catalog. The first request encodes it, and all
// readers share it. A server with a new catalog makes new Documents. The caller handles
// content negotiation, conditional requests and indentation.
package discovery

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Document is the response to one discovery request. It is shared: callers must not
// change Body.
type Document struct {
	// Body is JSON on one line that ends with a newline. That of Root is indented
	// and has no newline at the end.
	Body []byte
	// ETag is the value of the header with its quotes: the SHA-512 of the content in
	// upper-case hexadecimal. It is the same for two catalogs that serve the same. Only
	// aggregated documents have one. A request whose If-None-Match is exactly this string
	// gets a 304, and such responses have "Vary: Accept" and "Cache-Control: public".
	ETag string
}

// Documents are the discovery documents of one catalog. They are safe for
// concurrent use.
type Documents struct {
	catalog *resource.Catalog

	apis           lazy
	aggregatedCore lazy
	aggregatedAPIs lazy
	groups         []*groupDocuments // in the order of catalog.Groups
}

// groupDocuments are the documents of one group.
type groupDocuments struct {
	of       *resource.Group
	group    lazy
	versions []lazy
	// whole returns the item of the group in an aggregated document.
	whole func() []byte
}

// lazy is a document that the first call of get makes.
type lazy struct {
	once sync.Once
	doc  Document
}

func (l *lazy) get(build func() Document) Document {
	l.once.Do(func() { l.doc = build() })
	return l.doc
}

// New returns the documents of a catalog, which are made on demand. They share the documents of
// unchanged groups with before, those of another catalog, which may be nil.
func New(c *resource.Catalog, before *Documents) *Documents {
	groups := c.Groups()
	d := &Documents{catalog: c, groups: make([]*groupDocuments, len(groups))}
	known := map[string]*groupDocuments{}
	if before != nil {
		for _, g := range before.groups {
			known[g.of.Name] = g
		}
	}
	for i := range groups {
		g := groups[i] // a copy: a pointer into the slice would keep the catalog alive
		if old := known[g.Name]; old != nil && same(old.of, &g) {
			d.groups[i] = old
			continue
		}
		d.groups[i] = &groupDocuments{of: &g, versions: make([]lazy, len(g.Versions)),
			whole: sync.OnceValue(func() []byte { return marshal(groupDiscovery(&g)) })}
	}
	return d
}

// same reports whether two groups have the same versions of the same types.
func same(a, b *resource.Group) bool {
	return slices.EqualFunc(a.Versions, b.Versions, func(a, b resource.Version) bool {
		return a.Name == b.Name && slices.Equal(a.Types, b.Types)
	})
}

// Groups yields the groups in their order, each with a function that returns its item in an aggregated document. The caller must
// not change them.
func (d *Documents) Groups() iter.Seq2[*resource.Group, func() []byte] {
	return func(yield func(*resource.Group, func() []byte) bool) {
		for _, g := range d.groups {
			if !yield(g.of, g.whole) {
				return
			}
		}
	}
}

// API is GET /api: the versions of the core group, and serverAddress, the host and port for
// clients. Each call makes the document, since the address may be that of the connection.
func (d *Documents) API(serverAddress string) Document {
	return coreVersions(d.catalog, serverAddress)
}

// AggregatedAPI is GET /api for a client that accepts the aggregated form: the core group.
func (d *Documents) AggregatedAPI() Document {
	return d.aggregatedCore.get(func() Document {
		return d.aggregate(func(g *resource.Group) bool { return g.Name == "" })
	})
}

// APIs is GET /apis: the groups and their versions, without the core group.
func (d *Documents) APIs() Document {
	return d.apis.get(func() Document { return groupList(d.catalog) })
}

// AggregatedAPIs is GET /apis for a client that accepts the aggregated form: all groups but the core
// group.
func (d *Documents) AggregatedAPIs() Document {
	return d.aggregatedAPIs.get(func() Document {
		return d.aggregate(func(g *resource.Group) bool { return g.Name != "" })
	})
}

// Group is GET /apis/GROUP; false if there is no such group. The core group has no such
// document.
func (d *Documents) Group(name string) (Document, bool) {
	groups := d.catalog.Groups()
	i := slices.IndexFunc(groups, func(g resource.Group) bool { return g.Name == name })
	if i < 0 || name == "" {
		return Document{}, false
	}
	return d.groups[i].group.get(func() Document { return oneGroup(&groups[i]) }), true
}

// GroupVersion is GET /apis/GROUP/VERSION, and GET /api/v1 for the core group,
// whose name is empty: the resources and subresources of one version. It is false
// if the group does not have the version.
func (d *Documents) GroupVersion(group, version string) (Document, bool) {
	groups := d.catalog.Groups()
	i := slices.IndexFunc(groups, func(g resource.Group) bool { return g.Name == group })
	if i < 0 {
		return Document{}, false
	}
	versions := groups[i].Versions
	j := slices.IndexFunc(versions, func(v resource.Version) bool { return v.Name == version })
	if j < 0 {
		return Document{}, false
	}
	return d.groups[i].versions[j].get(func() Document { return resourceList(group, &versions[j]) }), true
}

// Root is GET /: the paths of the catalog and other paths of the server ("/healthz",
// "/version", ...), sorted. Each call makes the document.
func (d *Documents) Root(others ...string) Document {
	paths := append([]string{"/api", "/apis", "/apis/"}, others...)
	for _, g := range d.catalog.Groups() {
		prefix := "/api"
		if g.Name != "" {
			prefix = "/apis/" + g.Name
			paths = append(paths, prefix)
		}
		for _, v := range g.Versions {
			paths = append(paths, prefix+"/"+v.Name)
		}
	}
	slices.Sort(paths)
	var b strings.Builder
	b.WriteString("{\n  \"paths\": [")
	for i, p := range slices.Compact(paths) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(marshal(p))
	}
	b.WriteString("\n  ]\n}")
	return Document{Body: []byte(b.String())}
}
