package conformance

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"
)

const (
	representationSource = concepts + ", Alternate representations of resources"
	protobufSource       = concepts + ", Kubernetes Protobuf encoding"
)

var representationChecks = []Check{
	{ID: "representations.json", Level: Must, Source: representationSource,
		About: "A request that accepts JSON, or anything, gets JSON.", run: representationsJSON},
	{ID: "representations.not-acceptable", Level: Must, Source: representationSource,
		About: "An Accept header that has only unsupported media types gets 406.", run: representationsNotAcceptable},
	{ID: "representations.unsupported", Level: Should, Source: representationSource,
		About: "A body with an unsupported Content-Type gets 415.", run: representationsUnsupported},
	{ID: "representations.fallback", Level: Must, Source: representationSource,
		About: "A request that prefers protobuf and accepts JSON gets one of the two.", run: representationsFallback},
	{ID: "representations.protobuf", Level: Should, Source: protobufSource,
		About: "Protobuf consists of the four bytes k8s\\x00 and an envelope with kind, version and the object.", run: representationsProtobuf},
	{ID: "representations.protobuf-body", Level: Should, Source: representationSource,
		About: "A create can send protobuf and get JSON.", run: representationsProtobufBody},
	{ID: "representations.yaml", Level: May, Source: representationSource,
		About: "YAML is read and written.", run: representationsYAML},
	{ID: "representations.cbor", Level: May, Source: representationSource,
		About: "CBOR begins with the three bytes that mark it.", run: representationsCBOR},
	{ID: "representations.status", Level: Must, Source: representationSource,
		About: "An error is a Status with the response's code.", run: representationsStatus},
}

// isKind reports whether a Content-Type is of a media type.
func isKind(h http.Header, want string) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.TrimSpace(kind) == want
}

func representationsJSON(p *probe) {
	o := p.create("a", "1")
	for _, accept := range []string{asJSON, "*/*", asJSON + ";charset=utf-8", "text/html, */*;q=0.1"} {
		a := p.send(request{method: http.MethodGet, path: p.path(o.name()), accept: accept})
		p.want(a, http.StatusOK)
		if !isKind(a.header, asJSON) {
			p.failf("for Accept %q the Content-Type is %q, want %s", accept, a.header.Get("Content-Type"), asJSON)
		}
		if got := p.object(a); got.name() != o.name() {
			p.failf("for Accept %q the object is %q, want %s", accept, got.name(), o.name())
		}
	}
}

func representationsNotAcceptable(p *probe) {
	o := p.create("a", "1")
	for _, path := range []string{p.path(o.name()), p.all()} {
		a := p.send(request{method: http.MethodGet, path: path, accept: "application/x-none"})
		if a.code != http.StatusNotAcceptable {
			p.failf("got %s, want 406", a.describe())
		}
	}
}

func representationsUnsupported(p *probe) {
	r := p.posting(p.fresh("a", "1"), "")
	r.contentType = "application/x-none"
	if a := p.send(r); a.code != http.StatusUnsupportedMediaType {
		p.failf("got %s, want 415", a.describe())
	}
}

func representationsFallback(p *probe) {
	o := p.create("a", "1")
	a := p.send(request{method: http.MethodGet, path: p.path(o.name()), accept: asProtobuf + ", " + asJSON})
	p.want(a, http.StatusOK)
	if !isKind(a.header, asProtobuf) && !isKind(a.header, asJSON) {
		p.failf("the Content-Type is %q, want %s or %s", a.header.Get("Content-Type"), asProtobuf, asJSON)
	}
}

// protobufMagic begins every object in protobuf.
var protobufMagic = []byte("k8s\x00")

func representationsProtobuf(p *probe) {
	o := p.create("a", "1")
	for path, kind := range map[string]string{p.path(o.name()): p.resource.kind, p.all(): p.resource.kind + "List"} {
		a := p.send(request{method: http.MethodGet, path: path, accept: asProtobuf})
		if a.code == http.StatusNotAcceptable {
			p.absentf("%s", a.describe())
		}
		p.want(a, http.StatusOK)
		if !isKind(a.header, asProtobuf) {
			p.failf("the Content-Type is %q, want %s", a.header.Get("Content-Type"), asProtobuf)
		}
		message, ok := bytes.CutPrefix(a.body, protobufMagic)
		if !ok {
			p.failf("the body begins with %q, want %q", a.body[:min(len(a.body), 4)], protobufMagic)
		}
		typeMeta := protobufField(message, 1)
		version, name := string(protobufField(typeMeta, 1)), string(protobufField(typeMeta, 2))
		if version != p.resource.apiVersion() || name != kind {
			p.failf("the envelope is of a %q of %q, want %s of %s", name, version, kind, p.resource.apiVersion())
		}
		if !bytes.Contains(protobufField(message, 2), []byte(o.name())) {
			p.failf("the object in the envelope lacks the name %s", o.name())
		}
	}
}

// cborMark is the tag 55799, which begins every document in CBOR.
var cborMark = []byte("\xd9\xd9\xf7")

func representationsCBOR(p *probe) {
	o := p.create("a", "1")
	for _, path := range []string{p.path(o.name()), p.all()} {
		a := p.send(request{method: http.MethodGet, path: path, accept: asCBOR})
		if a.code == http.StatusNotAcceptable {
			p.absentf("%s", a.describe())
		}
		p.want(a, http.StatusOK)
		if !isKind(a.header, asCBOR) {
			p.failf("the Content-Type is %q, want %s", a.header.Get("Content-Type"), asCBOR)
		}
		if !bytes.HasPrefix(a.body, cborMark) {
			p.failf("the body begins with %x, want %x", a.body[:min(len(a.body), 3)], cborMark)
		}
		if !bytes.Contains(a.body, []byte(o.name())) {
			p.failf("the body lacks the name %s", o.name())
		}
	}
}

// protobufField returns the first length-delimited field of a message with a number, or nil.
func protobufField(b []byte, number protowire.Number) []byte {
	for len(b) > 0 {
		n, kind, length := protowire.ConsumeTag(b)
		if length < 0 {
			return nil
		}
		b = b[length:]
		if n == number && kind == protowire.BytesType {
			value, length := protowire.ConsumeBytes(b)
			if length < 0 {
				return nil
			}
			return value
		}
		if length = protowire.ConsumeFieldValue(n, kind, b); length < 0 {
			return nil
		}
		b = b[length:]
	}
	return nil
}

// representationsProtobufBody writes the fields that all types share: metadata is their field 1,
// and the name is its field 1.
func representationsProtobufBody(p *probe) {
	if len(bodies[p.resource.resource]) > 0 || p.resource.group != "" || p.bed.given != nil {
		p.skipf("needs a type that wants nothing but metadata, as configmaps")
	}
	field := func(b []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	name := p.named("a")
	typeMeta := field(field(nil, 1, []byte(p.resource.apiVersion())), 2, []byte(p.resource.kind))
	raw := field(nil, 1, field(nil, 1, []byte(name)))
	body := append(bytes.Clone(protobufMagic), field(field(nil, 1, typeMeta), 2, raw)...)
	p.remember(p.resource, name)
	a := p.send(request{method: http.MethodPost, path: p.all(), contentType: asProtobuf, body: body})
	if a.code == http.StatusUnsupportedMediaType {
		p.absentf("%s", a.describe())
	}
	p.want(a, http.StatusCreated)
	if o := p.object(a); o.name() != name || o.text("kind") != p.resource.kind {
		p.failf("the response is the %s %q, want the %s %s", o.text("kind"), o.name(), p.resource.kind, name)
	}
}

func representationsYAML(p *probe) {
	text, err := yaml.JSONToYAML(p.fresh("a", "1").encode())
	if err != nil {
		panic(err) // it was JSON
	}
	r := p.posting(p.fresh("a", "1"), "")
	r.contentType, r.accept, r.body = asYAML, asYAML, text
	a := p.send(r)
	if a.code == http.StatusUnsupportedMediaType || a.code == http.StatusNotAcceptable {
		p.absentf("%s", a.describe())
	}
	p.want(a, http.StatusCreated)
	asJSON, err := yaml.YAMLToJSON(a.body)
	var o object
	if err == nil {
		err = json.Unmarshal(asJSON, &o)
	}
	if err != nil || !isKind(a.header, asYAML) || bytes.HasPrefix(bytes.TrimSpace(a.body), []byte("{")) {
		p.failf("the response is no YAML: its Content-Type is %q (%v)", a.header.Get("Content-Type"), err)
	}
	if o.name() != p.named("a") || o.mark() != "1" {
		p.failf("the response is the object %q, want %s", o.name(), p.named("a"))
	}
}

func representationsStatus(p *probe) {
	a := p.send(request{method: http.MethodGet, path: p.path(p.named("absent"))})
	p.want(a, http.StatusNotFound)
	o := p.object(a)
	if code, _ := o.at("code").(float64); o.text("kind") != "Status" || o.text("status") != "Failure" || code != http.StatusNotFound || o.text("reason") == "" {
		p.failf("the response is a %q with status %q, code %v and reason %q, want a Status with Failure, 404 and a reason",
			o.text("kind"), o.text("status"), o.at("code"), o.text("reason"))
	}
}
