package aggregation

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

// A document of version 2 is merged when it is requested: the paths and definitions of extension servers are inserted into
// the server's own document, as JSON or as protobuf, and the result is kept in gzip. If a definition has the name of another
// one and is not equal to it, it gets a name of its own.

// v2Key identifies a merged document.
type v2Key struct {
	own   string // the ETag of the server's own document
	media string
	parts string // the sums of the others
}

// mergedV2 is a merged document.
type mergedV2 struct {
	key    v2Key
	etag   string
	packed []byte // gzip
	size   int    // unpacked
}

// merge returns the merged document. Own is the server's own one in gzip.
func (o *openAPI) merge(r *http.Request, key v2Key, parts []openAPIPart, own *recorder) (*mergedV2, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m := o.merged[key.media]; m != nil && m.key == key {
		return m, nil
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	mine, err := unpacked(own)
	if err != nil {
		return nil, err
	}
	asJSON := mine
	if isProtobuf(key.media) {
		other := o.recorded(r, http.Header{"Accept": {"application/json"}})
		if other.code != http.StatusOK {
			return nil, fmt.Errorf("the server's own document is %d", other.code)
		}
		asJSON = other.body.Bytes()
	}
	var at insertion
	if err := at.find(asJSON); err != nil {
		return nil, err
	}
	text, err := at.rename(parts).insert(mine, &at, key.media)
	if err != nil {
		return nil, err
	}
	m := &mergedV2{key: key, size: len(text)}
	sum := sha512.Sum512([]byte(key.own + key.parts))
	m.etag = `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(text) // into memory: no error
	z.Close()
	m.packed = bytes.Clone(packed.Bytes())
	if o.merged == nil {
		o.merged = map[string]*mergedV2{}
	}
	o.merged[key.media] = m // one for each media type
	return m, nil
}

func isProtobuf(media string) bool { return strings.Contains(media, "protobuf") }

func unpacked(r *recorder) ([]byte, error) {
	if r.header.Get("Content-Encoding") != "gzip" {
		return r.body.Bytes(), nil
	}
	z, err := gzip.NewReader(&r.body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// insertion is where members belong in a document.
type insertion struct {
	definitions, paths int64 // behind the brace
	// known are the definitions of the document.
	known map[string]jsontext.Value
	// forms has the checksums of definitions of the merged document that were needed, by name.
	forms map[string]string
	empty [2]bool // there are no definitions, no paths
}

// find reads a document.
func (at *insertion) find(doc []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	at.known, at.forms = map[string]jsontext.Value{}, map[string]string{}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		switch name.String() {
		case "definitions":
			if at.definitions, err = at.members(d, true); err != nil {
				return err
			}
			at.empty[0] = len(at.known) == 0
		case "paths":
			if at.paths, err = at.members(d, false); err != nil {
				return err
			}
		default:
			if err := d.SkipValue(); err != nil {
				return err
			}
		}
	}
	if at.definitions == 0 || at.paths == 0 || at.paths < at.definitions {
		return errors.New("the server's own document has no definitions before its paths")
	}
	return nil
}

// members reads an object, and returns the offset behind its brace.
func (at *insertion) members(d *jsontext.Decoder, keep bool) (int64, error) {
	if _, err := d.ReadToken(); err != nil {
		return 0, err
	}
	begin := d.InputOffset()
	at.empty[1] = d.PeekKind() == '}'
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return 0, err
		}
		text := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return 0, err
		}
		if keep {
			at.known[text] = value.Clone()
		}
	}
	_, err := d.ReadToken()
	return begin, err
}

// foreign are the members to insert, as JSON.
type foreign struct{ paths, definitions map[string]json.RawMessage }

// maxRenamed is how many definitions of one name there may be.
const maxRenamed = 100

// rename merges the parts. Definitions that the document has already are left out. A part that needs too many names is left
// out, too.
func (at *insertion) rename(parts []openAPIPart) *foreign {
	f := &foreign{map[string]json.RawMessage{}, map[string]json.RawMessage{}}
	for i := range parts {
		p := &parts[i]
		names, ok := at.namesFor(f, p)
		if !ok {
			continue
		}
		for name, d := range p.definitions {
			if next := names[name]; at.known[next] == nil && f.definitions[next] == nil {
				f.definitions[next] = renamed(d, names)
			}
		}
		for path, item := range p.paths {
			f.paths[path] = renamed(item, names)
		}
	}
	return f
}

// namesFor returns the names of the definitions of a part in the merged document.
func (at *insertion) namesFor(f *foreign, p *openAPIPart) (names map[string]string, ok bool) {
	names = map[string]string{}
	for _, name := range sortedKeys(p.definitions) {
		free, form := name, ""
		for n := 2; ; n++ {
			other := []byte(f.definitions[free])
			if other == nil {
				other = at.known[free]
			}
			if other == nil {
				break
			}
			if form == "" {
				form = formOf(p.definitions[name])
			}
			if at.forms[free] == "" {
				at.forms[free] = formOf(other)
			}
			if at.forms[free] == form {
				break
			}
			if n > maxRenamed {
				return nil, false
			}
			free = fmt.Sprintf("%s_v%d", name, n)
		}
		names[name] = free
	}
	return names, true
}

// kindsOf is the member of a definition with the kinds that it is the definition of. They differ between servers.
const kindsOf = "x-kubernetes-group-version-kind"

// formOf returns a checksum that equal definitions have in common, whatever kinds they belong to. Each definition is decoded
// once for a merge, however many others have its name.
func formOf(definition []byte) string {
	var members map[string]any
	if json.Unmarshal(definition, &members) == nil {
		delete(members, kindsOf)
		definition = marshal(members)
	}
	sum := sha512.Sum512_256(definition)
	return string(sum[:])
}

// renamed returns a value with references to the new names. It reads the value once, however many names there are.
func renamed(value json.RawMessage, names map[string]string) json.RawMessage {
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return json.RawMessage("{}")
	}
	text := compact.Bytes()
	made := make([]byte, 0, len(text))
	for {
		before, after, ok := bytes.Cut(text, []byte(reference))
		made = append(made, before...)
		if !ok {
			return made
		}
		name, _, ended := bytes.Cut(after, []byte{'"'})
		made = append(made, reference...)
		if next, known := names[string(name)]; known && ended {
			made = append(made, next...)
		} else {
			made = append(made, name...)
		}
		text = after[len(name):]
	}
}

// insert returns the document with the members.
func (f *foreign) insert(doc []byte, at *insertion, media string) ([]byte, error) {
	if isProtobuf(media) {
		more, err := f.protobuf()
		return append(doc, more...), err // the fields of a message may be in several parts
	}
	definitions, err := membersOf(f.definitions, at.empty[0])
	if err != nil {
		return nil, err
	}
	paths, err := membersOf(f.paths, at.empty[1])
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{doc[:at.definitions], definitions, doc[at.definitions:at.paths], paths, doc[at.paths:]}, nil), nil
}

// membersOf returns the members of an object. If others follow, a comma ends them.
func membersOf(all map[string]json.RawMessage, last bool) ([]byte, error) {
	if len(all) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	if text = text[1 : len(text)-1]; !last {
		text = append(text, ',')
	}
	return text, nil
}

// converting is held to convert a document, which takes many times its memory.
var converting sync.Mutex

// protobuf returns the members as a part of a message.
func (f *foreign) protobuf() (made []byte, err error) {
	converting.Lock()
	defer converting.Unlock()
	defer func() {
		if v := recover(); v != nil { // the library is not made for hostile documents
			err = fmt.Errorf("a document of an extension server cannot be converted: %v", v)
		}
	}()
	text, err := json.Marshal(map[string]any{
		"swagger": "2.0", "info": map[string]string{"title": "", "version": ""}, "paths": f.paths, "definitions": maps.Clone(f.definitions),
	})
	if err != nil {
		return nil, err
	}
	doc, err := openapi_v2.ParseDocument(text)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&openapi_v2.Document{Paths: doc.Paths, Definitions: doc.Definitions})
}
