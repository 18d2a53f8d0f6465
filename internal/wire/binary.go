package wire

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Binary is a medium that is not text. What is made of an object, its raw form, tells
// nothing of its kind, so that one form serves lists, events and the object itself: the
// kind stands around it.
type Binary struct {
	// ContentType and StreamType are the headers of answers and of watches.
	ContentType, StreamType []string
	// Prefix is how many bytes before an event tell its length.
	Prefix int
	// Sized: what stands before the items of a list depends on their bytes. Otherwise
	// it depends on their number.
	Sized bool
	// Tail ends a list.
	Tail string

	// Raw makes the raw form of an object, which it may change.
	Raw func(o runtime.Object) ([]byte, error)
	// AppendValue appends that of a stored value, in the type's own version.
	AppendValue func(to []byte, t *resource.Type, value []byte) ([]byte, error)
	// RawPartial makes that of a PartialObjectMetadata, of metadata as JSON; AppendPartial
	// appends it.
	RawPartial    func(meta []byte) ([]byte, error)
	AppendPartial func(to, meta []byte) ([]byte, error)
	// Document makes that of a Status or of a document of discovery, of JSON, and tells
	// its kind.
	Document func(value []byte) (head metav1.TypeMeta, raw []byte, err error)

	// Object appends an object.
	Object func(to []byte, head metav1.TypeMeta, raw []byte) []byte
	// Item appends an object of a list. The head is empty where an item has none.
	Item func(to []byte, head metav1.TypeMeta, raw []byte) []byte
	// Event appends a watch event.
	Event func(to []byte, eventType string, head metav1.TypeMeta, raw []byte) []byte
	// ListHead appends what stands before the items of a list.
	ListHead func(to []byte, f *Frame, size ListSize) []byte
}

// ListSize is how large the items of a list are together.
type ListSize struct {
	Items int
	// Bytes are those that Item appends; not known where they do not matter.
	Bytes int
}

// Append appends a document, which is JSON, as Object does.
func (b *Binary) Append(to, value []byte) ([]byte, error) {
	head, raw, err := b.Document(value)
	if err != nil {
		return to, err
	}
	return b.Object(to, head, raw), nil
}

// protobufForm is row C11.
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

// cborForm is row C15.
var cborForm = Binary{
	ContentType: []string{string(CBOR)},
	StreamType:  []string{"application/cbor-seq"},
	Raw:         rawCBOR,
	RawPartial:  rawPartialCBOR,
	AppendValue: func(to []byte, t *resource.Type, value []byte) ([]byte, error) {
		o, err := Read(context.Background(), t, value) // built-in kinds call no webhook
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
