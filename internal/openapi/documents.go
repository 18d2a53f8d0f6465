package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// documents makes the pages of a catalog on demand, and keeps them compressed.
type documents struct {
	catalog  *resource.Catalog
	version  string
	cbor     bool
	order    []string           // the pages of version 3
	subjects map[string]subject // of the pages of groups
	hashes   map[string]string  // of everything that a page depends on

	mu    sync.Mutex
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

func newDocuments(c *resource.Catalog, version string, cbor bool, before *documents) *documents {
	d := &documents{catalog: c, version: version, cbor: cbor, subjects: map[string]subject{}, pages: map[pageKey]*keptPage{}}
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

// keptPage is a page that was requested. Concurrent requests for it wait until it is made.
type keptPage struct {
	make   sync.Mutex
	packed []byte // gzip; nil while it is not made
}

// page returns a page, compressed.
func (d *documents) page(key pageKey) ([]byte, error) {
	d.mu.Lock()
	k := d.pages[key]
	if k == nil {
		k = &keptPage{}
		d.pages[key] = k
	}
	d.mu.Unlock()
	k.make.Lock()
	defer k.make.Unlock()
	if k.packed != nil {
		return k.packed, nil
	}
	b, err := d.make(key)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	k.packed = packed.Bytes()
	return k.packed, nil
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

// unpackedBytes returns the decompressed size, which gzip has at the end (RFC 1952).
func unpackedBytes(packed []byte) int {
	return int(binary.LittleEndian.Uint32(packed[len(packed)-4:]))
}

func (d *documents) make(key pageKey) ([]byte, error) {
	content, err := d.content(key.page)
	if err != nil {
		return nil, err
	}
	text, err := encode(content)
	if err != nil || key.form == asJSON {
		return text, err
	}
	if key.page == "v2" {
		doc, err := openapi_v2.ParseDocument(text)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(doc)
	}
	doc, err := openapi_v3.ParseDocument(text)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
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

// content makes a page as a tree.
func (d *documents) content(page string) (tree, error) {
	all, err := schemas()
	if err != nil {
		return nil, err
	}
	for name, texts := range descriptions(d.catalog) {
		if all[name] != nil {
			describe(all[name], texts)
		}
	}
	if err := d.addCustom(all, page); err != nil {
		return nil, err
	}
	for name, list := range kinds(d.catalog, all, page) {
		all[name]["x-kubernetes-group-version-kind"] = list
	}
	if page == "v2" {
		return d.contentV2(all), nil
	}
	paths := writerV3.paths(d.operations(page))
	found := map[string]bool{}
	reach(paths, all, found)
	shown := tree{}
	for name := range found {
		shown[name] = schemaV3(all[name])
	}
	if custom(d.subjects[page].types) {
		return tree{"openapi": "3.0.0", "info": customInfo, "paths": paths, "components": tree{"schemas": shown}}, nil
	}
	components := tree{"securitySchemes": tree{"BearerToken": bearer}}
	if len(shown) > 0 {
		components["schemas"] = shown
	}
	return tree{"openapi": "3.0.0", "info": d.info(), "paths": paths, "components": components}, nil
}

// addCustom adds the models of the custom kinds of a page.
func (d *documents) addCustom(all map[string]tree, page string) error {
	if page != "v2" {
		return addCustom(all, d.subjects[page].types, 3)
	}
	for _, g := range d.catalog.Groups() {
		for _, v := range g.Versions {
			if err := addCustom(all, v.Types, 2); err != nil {
				return err
			}
		}
	}
	return nil
}

var bearer = tree{"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"}

// info has the version of Kubernetes, such as "1.36".
func (d *documents) info() tree {
	parts := strings.SplitN(strings.TrimPrefix(d.version, "v"), ".", 3)
	return tree{"title": "Kubernetes", "version": strings.Join(parts[:min(2, len(parts))], ".")}
}

func (d *documents) contentV2(all map[string]tree) tree {
	operations := map[string][]operation{}
	for _, page := range d.order {
		for path, o := range d.operations(page) {
			operations[path] = o
		}
	}
	// The references of the schemas are still those of version 3.
	found := map[string]bool{}
	reach(writerV3.paths(operations), all, found)
	definitions := tree{}
	for name := range found {
		definitions[name] = schemaV2(all[name])
	}
	return tree{"swagger": "2.0", "info": d.info(), "paths": writerV2.paths(operations), "definitions": definitions,
		"securityDefinitions": tree{"BearerToken": bearer}, "security": []any{tree{"BearerToken": []any{}}}}
}

// operations returns the operations of a page of version 3, by path.
func (d *documents) operations(page string) map[string][]operation {
	switch page {
	case "api":
		return single("/api/", "core", "getCoreAPIVersions", "get available API versions", "APIVersions")
	case "apis":
		return single("/apis/", "apis", "getAPIVersions", "get available API versions", "APIGroupList")
	case "version":
		return fixed("/version/", "version", "getCodeVersion", "get the version information for this server", "application/json", "io.k8s.apimachinery.pkg.version.Info")
	}
	at, ok := d.subjects[page]
	if !ok {
		return nil
	}
	p := newGroupPage(at.group, at.version)
	if at.version == "" {
		return single("/apis/"+at.group+"/", strings.TrimSuffix(p.tag, "_"), "get"+p.title+"APIGroup", "get information of a group", "APIGroup")
	}
	if custom(at.types) {
		p.customResources(at.types)
		return p.paths
	}
	p.resources(at.types)
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
