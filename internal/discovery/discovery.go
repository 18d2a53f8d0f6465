// Package discovery makes the documents with which a server says what it serves:
// /api, /apis and what stands below them, in the form of one document per group
// and version and in the aggregated form that holds everything at once.
//
// A document is a pure function of a resource.Catalog. It is encoded when it is
// first asked for and then shared by all readers, so a server that swaps its
// catalog makes new Documents with it and throws the old ones away. Negotiation,
// conditional requests and indentation are the business of the code that writes the
// bytes to a client.
package discovery

import (
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// The media types of the two forms.
const (
	JSON           = "application/json"
	AggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// Document is the answer to one discovery request. It is shared: callers must not
// change Body.
type Document struct {
	// Body is JSON on one line that ends with a newline. That of Root is indented
	// and has no newline at the end.
	Body []byte
	// ContentType is JSON or AggregatedJSON.
	ContentType string
	// ETag is the value of the header, its quotes included: the SHA-512 of the
	// content in upper-case hexadecimal. Two catalogs that serve the same have the
	// same. Only aggregated documents have one; a request whose If-None-Match is this
	// very string is answered with 304, and such answers carry "Vary: Accept" and
	// "Cache-Control: public".
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

// groupDocuments are those of one group.
type groupDocuments struct {
	of       *resource.Group
	group    lazy
	versions []lazy
	// whole is what stands of the group in an aggregated document.
	whole func() []byte
}

// lazy is a document that is made when it is first asked for.
type lazy struct {
	once sync.Once
	doc  Document
}

func (l *lazy) get(build func() Document) Document {
	l.once.Do(func() { l.doc = build() })
	return l.doc
}

// New returns the documents of a catalog. It does no work yet. What groups say that are
// the same in before, the documents of another catalog, is taken over; nil: there are
// none.
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
		g := groups[i] // not a part of the catalog, which would stay as long as the group
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

// API is GET /api: the versions of the core group. Clients are told to reach the
// server at serverAddress, a host and port. The document is made anew by each
// call, as the address may be that of the connection.
func (d *Documents) API(serverAddress string) Document {
	return coreVersions(d.catalog, serverAddress)
}

// AggregatedAPI is GET /api for a client that accepts AggregatedJSON: everything
// in the core group.
func (d *Documents) AggregatedAPI() Document {
	return d.aggregatedCore.get(func() Document {
		return d.aggregate(func(g *resource.Group) bool { return g.Name == "" })
	})
}

// APIs is GET /apis: the groups and their versions, without the core group.
func (d *Documents) APIs() Document {
	return d.apis.get(func() Document { return groupList(d.catalog) })
}

// AggregatedAPIs is GET /apis for a client that accepts AggregatedJSON: everything
// in all groups but the core group.
func (d *Documents) AggregatedAPIs() Document {
	return d.aggregatedAPIs.get(func() Document {
		return d.aggregate(func(g *resource.Group) bool { return g.Name != "" })
	})
}

// Group is GET /apis/GROUP; false when there is no such group. The core group
// has no such document.
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
// when the group does not have the version.
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

// Root is GET /: the paths of everything that the catalog serves and of what else
// the server has to offer ("/healthz", "/version", ...), sorted. It is made anew
// by each call.
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
	return Document{Body: []byte(b.String()), ContentType: JSON}
}
