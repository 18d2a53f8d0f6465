package openapi

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// documents makes the pages of a catalog on demand, and keeps them compressed.
type documents struct {
	catalog  *resource.Catalog
	library  *library
	version  string
	cbor     bool
	order    []string           // the pages of version 3
	subjects map[string]subject // of the pages of groups
	hashes   map[string]string  // of everything that a page depends on

	converted int64 // the bytes of custom kinds that were converted for a page; used by make alone, which pace calls once at a time

	mu    sync.Mutex // guards pages
	pages map[pageKey]*keptPage
}

// subject is the group and version of a page. The page of the group itself has no version.
type subject struct {
	group, version string
	types          []*resource.Type
}

// pageKey names a page and its form.
type pageKey struct {
	page string // of version 3, as in the index; "v2" for version 2
	form form
}

type form int

const (
	asJSON form = iota
	asProtobuf
)

func newDocuments(c *resource.Catalog, s *Source, before *documents) *documents {
	d := &documents{catalog: c, library: s.library, version: s.version, cbor: s.cbor, subjects: map[string]subject{}, pages: map[pageKey]*keptPage{}}
	d.order = []string{"api", "apis", "version"}
	for _, g := range c.Groups() {
		builtin := slices.ContainsFunc(g.Versions, func(v resource.Version) bool { return !custom(v.Types) })
		if g.Name != "" && builtin {
			d.add("apis/"+g.Name, subject{group: g.Name})
		}
		for _, v := range g.Versions {
			d.add(pageOf(g.Name, v.Name), subject{group: g.Name, version: v.Name, types: v.Types})
		}
	}
	d.hashes = make(map[string]string, len(d.order)+1)
	every := sha512.New()
	for _, name := range d.order {
		hash := ""
		if before != nil && slices.Equal(before.subjects[name].types, d.subjects[name].types) {
			hash = before.hashes[name]
		}
		if hash == "" {
			hash = d.newHash(name)
		}
		d.hashes[name] = hash
		io.WriteString(every, hash)
	}
	d.hashes["v2"] = upper(every.Sum(nil))
	if before != nil {
		d.keep(before)
	}
	return d
}

func (d *documents) add(page string, p subject) {
	d.order = append(d.order, page)
	d.subjects[page] = p
}

func (d *documents) newHash(page string) string {
	h := sha512.New()
	fmt.Fprintln(h, embeddedHash(), d.version, d.cbor, page)
	for _, t := range d.subjects[page].types {
		fmt.Fprintln(h, t.GroupVersionKind(), t.Resource, t.Verbs)
		if t.Custom != nil {
			fmt.Fprintln(h, t.Custom.Stamp)
		}
		for i := range t.Subresources {
			fmt.Fprintln(h, t.Subresources[i].Name, t.Subresources[i].Kind, t.Subresources[i].Verbs)
		}
	}
	return upper(h.Sum(nil))
}

func upper(sum []byte) string { return strings.ToUpper(hex.EncodeToString(sum)) }

// embeddedHash is the hash of the embedded schemas. All servers share it: it is a constant
// of the program.
var embeddedHash = sync.OnceValue(func() string {
	sum := sha512.Sum512(embedded)
	return string(sum[:])
})

// keep takes over the unchanged pages.
func (d *documents) keep(before *documents) {
	before.mu.Lock()
	defer before.mu.Unlock()
	for key, page := range before.pages {
		if d.hashOf(key.page) == before.hashOf(key.page) {
			d.pages[key] = page
		}
	}
}

// hashOf returns the hash of a page. It changes whenever the page may have changed.
func (d *documents) hashOf(page string) string { return d.hashes[page] }

// pageOf returns the page of a group and version.
func pageOf(group, version string) string {
	if group == "" {
		return "api/" + version
	}
	return "apis/" + group + "/" + version
}

// index makes /openapi/v3.
func (d *documents) index() ([]byte, error) {
	paths := tree{}
	for _, name := range d.order {
		paths[name] = tree{"serverRelativeURL": "/openapi/v3/" + name + "?hash=" + d.hashOf(name)}
	}
	return encode(tree{"paths": paths})
}

// keptPage is a page that was requested.
type keptPage struct {
	packed []byte // gzip
	size   int64  // decompressed
}

// kept returns a page, nil if it is not made.
func (d *documents) kept(key pageKey) *keptPage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pages[key]
}

// make makes a page, and returns the bytes that it has written, and more for those that it has converted, also if it
// fails. It ends early when the context does. It must not be called concurrently.
func (d *documents) make(ctx context.Context, key pageKey) (n int64, err error) {
	d.converted = 0
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	w := &counted{ctx: ctx, w: compressed}
	defer func() { n = w.n + conversionFactor*d.converted }()
	c, err := d.contents(ctx, key)
	if err != nil {
		return 0, err
	}
	if err := c.write(w); err != nil {
		return 0, err
	}
	if err := compressed.Close(); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pages[key] = &keptPage{bytes.Clone(packed.Bytes()), w.n}
	return 0, nil
}

// counted counts the written bytes, and fails when the context ends.
type counted struct {
	ctx context.Context //nolint:containedctx // of the one page that it is made for
	w   io.Writer
	n   int64
}

// Write implements io.Writer.
func (c *counted) Write(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// unpacker decompresses pages piece by piece. Pages are large, and a client that does not
// read must not hold one in memory.
type unpacker struct {
	gzip.Reader
	piece [32 << 10]byte
}

// unpackers are scratch memory: each use begins with Reset.
var unpackers = sync.Pool{New: func() any { return new(unpacker) }}

// unpack writes a compressed page.
func unpack(w io.Writer, packed []byte) error {
	u := unpackers.Get().(*unpacker)
	defer unpackers.Put(u)
	if err := u.Reset(bytes.NewReader(packed)); err != nil {
		return err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, &u.Reader, u.piece[:])
	return err
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

var bearer = tree{"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"}

// info has the version of Kubernetes, such as "1.37".
func (d *documents) info() tree {
	parts := strings.SplitN(strings.TrimPrefix(d.version, "v"), ".", 3)
	return tree{"title": "Kubernetes", "version": strings.Join(parts[:min(2, len(parts))], ".")}
}

// ownOperations returns the operations of a page that belong to no type, by path.
func (d *documents) ownOperations(page string) map[string][]operation {
	switch page {
	case "api":
		return single("/api/", "core", "getCoreAPIVersions", "get available API versions", "APIVersions")
	case "apis":
		return single("/apis/", "apis", "getAPIVersions", "get available API versions", "APIGroupList")
	case "version":
		return fixed("/version/", "version", "getCodeVersion", "get the version information for this server", "application/json", "io.k8s.apimachinery.pkg.version.Info")
	}
	at := d.subjects[page]
	p := newGroupPage(at.group, at.version)
	switch {
	case at.version == "":
		return single("/apis/"+at.group+"/", strings.TrimSuffix(p.tag, "_"), "get"+p.title+"APIGroup", "get information of a group", "APIGroup")
	case custom(at.types):
		return nil
	}
	p.resources()
	if d.cbor {
		p.addCBOR()
	}
	return p.paths
}

// single returns a page with one operation, whose response is a kind of meta/v1.
func single(path, tag, id, text, kind string) map[string][]operation {
	return map[string][]operation{path: {{method: "get", id: id, text: text, tag: tag, consumes: objectTypes, produces: objectTypes,
		responses: []response{{"200", "OK", metaPrefix + kind}, unauthorized}}}}
}

// fixed returns a page with one operation of a single media type.
func fixed(path, tag, id, text, media, model string) map[string][]operation {
	return map[string][]operation{path: {{method: "get", id: id, text: text, tag: tag, consumes: []string{media}, produces: []string{media},
		responses: []response{{"200", "OK", model}, unauthorized}}}}
}
