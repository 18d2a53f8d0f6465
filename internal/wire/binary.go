package wire

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Binary is a binary encoding. The raw form of an object does not contain its kind, so one
// raw form serves lists, events and the object itself: the kind surrounds it.
type Binary struct {
	// ContentType and StreamType are the headers of responses and of watches.
	ContentType, StreamType []string
	// Prefix is the number of bytes before an event that hold its length.
	Prefix int
	// Sized: the head of a list depends on the size of its items. Otherwise it depends on
	// their number.
	Sized bool
	// Tail ends a list.
	Tail string

	// Raw returns the raw form of an object, and may change the object.
	Raw func(o runtime.Object) ([]byte, error)
	// AppendValue appends the raw form of a stored value, in the type's own version.
	AppendValue func(to []byte, t *resource.Type, value []byte) ([]byte, error)
	// RawPartial returns the raw form of a PartialObjectMetadata, given its metadata as
	// JSON; AppendPartial appends it.
	RawPartial    func(meta []byte) ([]byte, error)
	AppendPartial func(to, meta []byte) ([]byte, error)
	// Document returns the raw form and the kind of a Status or a discovery document, given
	// as JSON.
	Document func(value []byte) (head metav1.TypeMeta, raw []byte, err error)

	// Object appends an object.
	Object func(to []byte, head metav1.TypeMeta, raw []byte) []byte
	// Item appends an object of a list. The head is empty where an item has none.
	Item func(to []byte, head metav1.TypeMeta, raw []byte) []byte
	// Event appends a watch event.
	Event func(to []byte, eventType string, head metav1.TypeMeta, raw []byte) []byte
	// ListHead appends the part of a list before its items.
	ListHead func(to []byte, f *Frame, size ListSize) []byte
}

// ListSize is the size of a list's items.
type ListSize struct {
	Items int
	// Bytes that Item appends for all items; unknown unless Sized.
	Bytes int
}

// Append appends a document, given as JSON, as Object does.
func (b *Binary) Append(to, value []byte) ([]byte, error) {
	head, raw, err := b.Document(value)
	if err != nil {
		return to, err
	}
	return b.Object(to, head, raw), nil
}

// protobufForm is Kubernetes' protobuf encoding.
var protobufForm = Binary{
	ContentType:   []string{string(Protobuf)},
	StreamType:    []string{string(Protobuf) + ";stream=watch"},
	Prefix:        eventPrefix,
	Sized:         true,
	Tail:          envelopeTail,
	Raw:           Message,
	RawPartial:    PartialMessage,
	AppendValue:   AppendMessageOf,
	AppendPartial: AppendPartialMessage,
	Document:      documentMessage,
	Object:        AppendEnvelope,
	Item:          appendMessageItem,
	Event:         appendMessageEvent,
	ListHead:      appendMessageHead,
}

// cborForm is Kubernetes' CBOR encoding.
var cborForm = Binary{
	ContentType: []string{string(CBOR)},
	StreamType:  []string{"application/cbor-seq"},
	Raw:         rawCBOR,
	RawPartial:  rawPartialCBOR,
	AppendValue: func(to []byte, t *resource.Type, value []byte) ([]byte, error) {
		o, err := Read(context.Background(), t, value) // built-in kinds need no webhook
		if err != nil {
			return to, err
		}
		raw, err := rawCBOR(o)
		return append(to, raw...), err
	},
	AppendPartial: func(to, meta []byte) ([]byte, error) {
		raw, err := rawPartialCBOR(meta)
		return append(to, raw...), err
	},
	Document: documentCBOR,
	Object:   appendCBOR,
	Item:     appendCBORItem,
	Event:    appendCBOREvent,
	ListHead: appendCBORListHead,
}
