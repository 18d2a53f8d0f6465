package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// message is implemented by the generated types of Kubernetes.
type message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

// marshal encodes a message.
func marshal(o any) ([]byte, error) {
	m, ok := o.(message)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf form", o)
	}
	b := make([]byte, m.Size())
	n, err := m.MarshalToSizedBuffer(b)
	if err != nil {
		return nil, fmt.Errorf("writing protobuf: %w", err)
	}
	return b[len(b)-n:], nil
}

// Message returns an object as protobuf, without an envelope.
func Message(o runtime.Object) ([]byte, error) { return marshal(o) }

// MessageOf returns a stored value as protobuf in the type's own version, without an
// envelope.
func MessageOf(t *resource.Type, value []byte) ([]byte, error) { return AppendMessageOf(nil, t, value) }

// AppendMessageOf appends the result of MessageOf.
func AppendMessageOf(to []byte, t *resource.Type, value []byte) ([]byte, error) {
	if t.Conversion == nil {
		if p := planOf(t); p != nil {
			if b, ok := p.transcode(to, value); ok {
				return b, nil
			}
		}
	}
	o, err := Read(context.Background(), t, value) // built-in kinds need no webhook
	if err != nil {
		return to, err
	}
	b, err := marshal(o)
	return append(to, b...), err
}

// PartialMessage returns a PartialObjectMetadata as protobuf, without an envelope, given
// its metadata as JSON.
func PartialMessage(meta []byte) ([]byte, error) { return AppendPartialMessage(nil, meta) }

// AppendPartialMessage appends the result of PartialMessage.
func AppendPartialMessage(to, meta []byte) ([]byte, error) {
	if p := metadataPlan(); p != nil {
		if b, ok := p.transcode(to, meta, tag1); ok {
			return b, nil
		}
	}
	o, err := partialOf(meta)
	if err != nil {
		return to, err
	}
	b, err := marshal(o)
	return append(to, b...), err
}

// documents are the kinds of responses that are not resources.
var documents = map[string]func() runtime.Object{
	"Status":          func() runtime.Object { return new(metav1.Status) },
	"APIVersions":     func() runtime.Object { return new(metav1.APIVersions) },
	"APIGroupList":    func() runtime.Object { return new(metav1.APIGroupList) },
	"APIGroup":        func() runtime.Object { return new(metav1.APIGroup) },
	"APIResourceList": func() runtime.Object { return new(metav1.APIResourceList) },

	"APIGroupDiscoveryList": func() runtime.Object { return new(apidiscoveryv2.APIGroupDiscoveryList) },
}

// documentMessage returns a Status or a discovery document, given as JSON, as protobuf,
// with its kind.
func documentMessage(value []byte) (head metav1.TypeMeta, raw []byte, err error) {
	if head, err = TypeMeta(value); err != nil {
		return head, nil, err
	}
	create := documents[head.Kind]
	if create == nil {
		return head, nil, fmt.Errorf("a %s has no protobuf form", head.Kind)
	}
	o := create()
	if err := json.Unmarshal(value, o); err != nil {
		return head, nil, fmt.Errorf("reading a %s: %w", head.Kind, err)
	}
	if head.APIVersion == "" { // discovery documents omit it
		head.APIVersion = "v1"
	}
	raw, err = marshal(o)
	return head, raw, err
}

// A field of a message has a tag, here always of one byte, a length, and bytes.
const (
	tag1 = 1<<3 | byte(protowire.BytesType)
	tag2 = 2<<3 | byte(protowire.BytesType)
	tag3 = 3<<3 | byte(protowire.BytesType)
	tag4 = 4<<3 | byte(protowire.BytesType)
)

func appendField[B []byte | string](to []byte, tag byte, value B) []byte {
	to = protowire.AppendVarint(append(to, tag), uint64(len(value)))
	return append(to, value...)
}

// fieldLen is the length of a field in a message.
func fieldLen(n int) int { return 1 + protowire.SizeBytes(n) }

// AppendEnvelope appends a message in the envelope that holds its kind.
func AppendEnvelope(to []byte, head metav1.TypeMeta, raw []byte) []byte {
	to = appendEnvelopeHead(to, head, len(raw))
	to = append(to, raw...)
	return append(to, envelopeTail...)
}

// envelopeTail is the encoding and the type of the content, which are empty.
const envelopeTail = string(tag3) + "\x00" + string(tag4) + "\x00"

func appendEnvelopeHead(to []byte, head metav1.TypeMeta, rawLen int) []byte {
	to = append(to, protobufPrefix...)
	kindLen := fieldLen(len(head.APIVersion)) + fieldLen(len(head.Kind))
	to = protowire.AppendVarint(append(to, tag1), uint64(kindLen))
	to = appendField(to, tag1, head.APIVersion)
	to = appendField(to, tag2, head.Kind)
	return protowire.AppendVarint(append(to, tag2), uint64(rawLen))
}

// appendMessageItem appends a message as an item of a list.
func appendMessageItem(to []byte, _ metav1.TypeMeta, raw []byte) []byte {
	return appendField(to, tag2, raw)
}

// appendMessageHead appends the part of a protobuf list before its items.
func appendMessageHead(to []byte, f *Frame, size ListSize) []byte {
	meta := f.Meta.listMeta()
	raw, _ := meta.Marshal() // to memory: no error
	to = appendEnvelopeHead(to, metav1.TypeMeta{Kind: f.Kind, APIVersion: f.APIVersion}, fieldLen(len(raw))+size.Bytes)
	return appendField(to, tag1, raw)
}

// TypeOf returns the kind and apiVersion of an object in a representation.
func TypeOf(t *resource.Type, out Output) metav1.TypeMeta {
	if out.Form == Partial {
		return metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: out.metaVersion()}
	}
	return metav1.TypeMeta{Kind: t.Kind, APIVersion: t.GroupVersion().String()}
}

// ItemTypeOf returns the kind and apiVersion of an item in a list. Only partial objects and
// custom resources have them.
func ItemTypeOf(t *resource.Type, out Output) metav1.TypeMeta {
	switch {
	case out.Form == Whole && t.Custom != nil:
		return metav1.TypeMeta{Kind: t.Kind, APIVersion: t.GroupVersion().String()}
	case out.Form == PartialList:
		return metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: out.metaVersion()}
	}
	return metav1.TypeMeta{}
}

// eventPrefix is the number of bytes before a protobuf event that hold its length.
const eventPrefix = 4

// appendMessageEvent appends a watch event: its length in four bytes, the type, and the
// object as a message in its envelope.
func appendMessageEvent(to []byte, eventType string, head metav1.TypeMeta, raw []byte) []byte {
	kindLen := fieldLen(len(head.APIVersion)) + fieldLen(len(head.Kind))
	inner := len(protobufPrefix) + fieldLen(kindLen) + fieldLen(len(raw)) + len(envelopeTail)
	extension := fieldLen(inner)
	to = binary.BigEndian.AppendUint32(to, uint32(fieldLen(len(eventType))+fieldLen(extension)))
	to = appendField(to, tag1, eventType)
	to = protowire.AppendVarint(append(to, tag2), uint64(extension))
	to = protowire.AppendVarint(append(to, tag1), uint64(inner))
	return AppendEnvelope(to, head, raw)
}
