package etcdvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// encodeCustom returns a custom resource as kube-apiserver stores it: JSON whose members are
// sorted at all levels, and a newline. The object has an empty resource version at the place.
func encodeCustom(object []byte, at int) ([]byte, error) {
	if value, ok := sorted(object, at); ok {
		return value, nil
	}
	var all map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &all); err != nil {
		return nil, err
	}
	metadata, _ := all["metadata"].(map[string]any)
	if metadata == nil {
		return nil, errNoMetadata
	}
	delete(metadata, "resourceVersion")
	return line(all)
}

// likeEncoding are the options that make the output of jsontext equal to that of encoding/json.
var likeEncoding = []jsontext.Options{jsontext.ReorderRawObjects(true), jsontext.EscapeForHTML(true), jsontext.EscapeForJS(true)}

// sorted is encodeCustom without decoding the object, which takes a fifth of the time. It keeps
// numbers as they are. It fails for names that encoding/json and jsontext sort differently (one
// compares bytes, the other one UTF-16) and for text that a stricter decoder refuses.
func sorted(object []byte, at int) (value []byte, ok bool) {
	const surrogates = 0xEE // the first UTF-8 byte from which on the two orders differ
	if slices.ContainsFunc(object, func(b byte) bool { return b >= surrogates }) || bytes.Contains(object, []byte(`\ud`)) {
		return nil, false
	}
	before, behind, found := bytes.Cut(object[at:], []byte(`"`))
	if !found || len(before) > 0 {
		return nil, false
	}
	head := object[:at-len(versionMember)]
	switch { // the comma behind the member goes, or the one before it
	case bytes.HasPrefix(behind, []byte(",")):
		behind = behind[1:]
	case bytes.HasSuffix(head, []byte(",")):
		head = head[:len(head)-1]
	}
	text := make(jsontext.Value, 0, len(object)+1)
	text = append(append(text, head...), behind...)
	if text.Format(likeEncoding...) != nil || text.Kind() != '{' {
		return nil, false
	}
	return append(text, '\n'), true
}

var errNoMetadata = errors.New("the object has no metadata")

// decodeCustom reads a custom resource. The members keep the order that they have, but kind,
// apiVersion and metadata come first, as in all objects of the store.
func decodeCustom(value []byte) (Decoded, error) {
	if len(value) > 0 && value[0] == '{' {
		d, err := reorder(value)
		if err == nil {
			return d, nil
		}
	}
	d, err := decodeOther(value)
	d.Outdated = true
	return d, err
}

// decodeOther reads a custom resource in CBOR, or in JSON with repeated members or with other
// text that needs a lenient decoder.
func decodeOther(value []byte) (Decoded, error) {
	if bytes.HasPrefix(value, []byte(cborMark)) {
		text, err := fromCBOR(value)
		if err != nil {
			return Decoded{}, err
		}
		return reorder(text)
	}
	var all map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &all); err != nil {
		return Decoded{}, err
	}
	text, err := json.Marshal(all)
	if err != nil {
		return Decoded{}, err
	}
	return reorder(text)
}

// head is the beginning of a custom resource.
type head struct {
	kind, apiVersion, metadata jsontext.Value
	rest                       []byte // the other members, each with a comma before it
}

// reorder moves kind, apiVersion and metadata to the front, and writes the metadata as
// encoding/json writes an ObjectMeta.
func reorder(value []byte) (Decoded, error) {
	h, err := readHead(value)
	if err != nil {
		return Decoded{}, err
	}
	var metadata metav1.ObjectMeta
	if err := unmarshal(h.metadata, &metadata); err != nil {
		return Decoded{}, fmt.Errorf("metadata: %w", err)
	}
	const digits = "0" // an empty resource version would be omitted
	metadata.ResourceVersion = digits
	text, err := json.Marshal(&metadata)
	if err != nil {
		return Decoded{}, fmt.Errorf("metadata: %w", err)
	}
	at := bytes.Index(text, []byte(versionMember)) + len(versionMember)
	out := make([]byte, 0, len(value)+64)
	for _, part := range [][]byte{[]byte(`{"kind":`), h.kind, []byte(`,"apiVersion":`), h.apiVersion, []byte(`,"metadata":`)} {
		out = append(out, part...)
	}
	d := Decoded{RevisionAt: len(out) + at}
	out = append(append(out, text[:at]...), text[at+len(digits):]...)
	d.JSON = append(append(out, h.rest...), '}')
	return d, nil
}

const versionMember = `"resourceVersion":"`

// readHead splits a custom resource into its members. Repeated members and invalid text are
// errors.
func readHead(value []byte) (h head, err error) {
	text := jsontext.Value(bytes.Clone(value))
	if err := text.Compact(); err != nil {
		return h, err
	}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if _, err := d.ReadToken(); err != nil {
		return h, err
	}
	h.rest = make([]byte, 0, len(text))
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return h, err
		}
		name = name.Clone()
		member, err := d.ReadValue()
		if err != nil {
			return h, err
		}
		switch string(name) {
		case `"kind"`:
			h.kind = member.Clone()
		case `"apiVersion"`:
			h.apiVersion = member.Clone()
		case `"metadata"`:
			h.metadata = member.Clone()
		default:
			h.rest = append(append(append(append(h.rest, ','), name...), ':'), member...)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return h, err
	}
	switch {
	case h.kind.Kind() != '"' || h.apiVersion.Kind() != '"':
		return h, errors.New("the object has no kind or no apiVersion")
	case h.metadata.Kind() != '{':
		return h, errNoMetadata
	}
	return h, nil
}
