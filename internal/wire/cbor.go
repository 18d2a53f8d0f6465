package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	fastjson "github.com/go-json-experiment/json"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// selfDescribed is the head of the tag (55799) that begins each CBOR response.
const selfDescribed = "\xd9\xd9\xf7"

// Major types of RFC 8949, as they stand in the head of a data item.
const (
	cborUnsigned = iota << 5
	cborNegative
	cborBytes
	cborText
	cborArray
	cborMap
	cborTag
	cborSimple
)

const cborNull = 0xf6

// appendCBORHead appends the head of a data item: its type and a number.
func appendCBORHead(to []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(to, major|byte(n))
	case n < 1<<8:
		return append(to, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(to, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(to, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(to, major|27), n)
}

// appendCBORString appends a string, which Kubernetes writes as a byte string.
func appendCBORString(to []byte, s string) []byte {
	return append(appendCBORHead(to, cborBytes, uint64(len(s))), s...)
}

// cborHead reads the head of a data item, and returns its length; zero: it is not valid.
func cborHead(b []byte) (major byte, n uint64, length int) {
	if len(b) == 0 {
		return 0, 0, 0
	}
	major = b[0] & 0xe0
	switch short := b[0] & 0x1f; {
	case short < 24:
		return major, uint64(short), 1
	case short == 24 && len(b) >= 2:
		return major, uint64(b[1]), 2
	case short == 25 && len(b) >= 3:
		return major, uint64(binary.BigEndian.Uint16(b[1:])), 3
	case short == 26 && len(b) >= 5:
		return major, uint64(binary.BigEndian.Uint32(b[1:])), 5
	case short == 27 && len(b) >= 9:
		return major, binary.BigEndian.Uint64(b[1:]), 9
	}
	return major, 0, 0
}

// rawCBOR returns an object as a map, without its kind.
func rawCBOR(o runtime.Object) ([]byte, error) {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	fieldsInCBOR(o)
	b, err := direct.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("writing CBOR: %w", err)
	}
	return b, nil
}

func rawPartialCBOR(meta []byte) ([]byte, error) {
	o, err := partialOf(meta)
	if err != nil {
		return nil, err
	}
	return rawCBOR(o)
}

// documentCBOR returns any document, given as JSON.
func documentCBOR(value []byte) (head metav1.TypeMeta, raw []byte, err error) {
	var document map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &document); err != nil {
		return head, nil, fmt.Errorf("reading a document: %w", err)
	}
	head.Kind, _ = document["kind"].(string)
	head.APIVersion, _ = document["apiVersion"].(string)
	if head.APIVersion == "" { // discovery documents omit it
		head.APIVersion = "v1"
	}
	delete(document, "kind")
	delete(document, "apiVersion")
	raw, err = direct.Marshal(document)
	return head, raw, err
}

// appendCBOR appends an object on its own.
func appendCBOR(to []byte, head metav1.TypeMeta, raw []byte) []byte {
	return appendCBORItem(append(to, selfDescribed...), head, raw)
}

// appendCBORItem appends an object inside another one. Its kind becomes the first two
// entries of its map.
func appendCBORItem(to []byte, head metav1.TypeMeta, raw []byte) []byte {
	if head == (metav1.TypeMeta{}) {
		return append(to, raw...)
	}
	_, entries, length := cborHead(raw)
	to = appendCBORHead(to, cborMap, entries+2)
	to = appendCBORKind(to, head)
	return append(to, raw[length:]...)
}

func appendCBORKind(to []byte, head metav1.TypeMeta) []byte {
	to = appendCBORString(appendCBORString(to, "kind"), head.Kind)
	return appendCBORString(appendCBORString(to, "apiVersion"), head.APIVersion)
}

// appendCBOREvent appends a watch event: a data item of a sequence (RFC 8742).
func appendCBOREvent(to []byte, eventType string, head metav1.TypeMeta, raw []byte) []byte {
	to = appendCBORHead(append(to, selfDescribed...), cborMap, 2)
	to = appendCBORString(appendCBORString(to, "type"), eventType)
	return appendCBOR(appendCBORString(to, "object"), head, raw)
}

// appendCBORListHead appends the part before the items, which ends with their number.
func appendCBORListHead(to []byte, f *Frame, size ListSize) []byte {
	to = appendCBORHead(append(to, selfDescribed...), cborMap, 4)
	to = appendCBORKind(to, metav1.TypeMeta{Kind: f.Kind, APIVersion: f.APIVersion})
	meta, _ := direct.Marshal(f.Meta.listMeta()) // plain data: no error
	to = append(appendCBORString(to, "metadata"), meta...)
	to = appendCBORString(to, "items")
	if size.Items == 0 && f.null {
		return append(to, cborNull)
	}
	return appendCBORHead(to, cborArray, uint64(size.Items))
}

// single is the one type that a body is decoded as.
type single struct {
	kind   schema.GroupVersionKind
	create func() runtime.Object
}

// ObjectKinds implements runtime.ObjectTyper.
func (s single) ObjectKinds(runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return []schema.GroupVersionKind{s.kind}, false, nil
}

// Recognizes implements runtime.ObjectTyper.
func (s single) Recognizes(kind schema.GroupVersionKind) bool { return kind == s.kind }

// New implements runtime.ObjectCreater. A body of another kind is refused, so the type it
// is decoded as does not matter.
func (s single) New(schema.GroupVersionKind) (runtime.Object, error) { return s.create(), nil }

// readCBOR reads a body as a type. The kind is that of the body, or of the type where the
// body has none; nil: it could not be decoded. Complaints are the errors of field
// validation; the decoder returns one at most.
func readCBOR(body []byte, s single) (o runtime.Object, kind *schema.GroupVersionKind, complaints []error, err error) {
	err, late := checkCBOR(body)
	if err != nil {
		return nil, nil, nil, err
	}
	o, kind, err = cbor.NewSerializer(s, s, cbor.Strict(true)).Decode(body, nil, s.create())
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		complaints, err = strict.Errors(), nil
	}
	if err == nil && late != nil {
		// The error may be about an unknown field. A stored object must have a JSON form.
		if _, unwritten := fastjson.Marshal(o); unwritten != nil {
			err = late
		}
	}
	return o, kind, complaints, err
}

// decodeCBOR reads a body in CBOR.
func decodeCBOR(t *resource.Type, body []byte) (d Decoded, err error) {
	if t.Custom != nil {
		data, err := configurationCBOR(body)
		var known apierrors.APIStatus
		switch {
		case errors.As(err, &known):
			return d, err
		case err != nil:
			return d, unrecognized(t, body, err)
		}
		return d, d.decodeTree(t, data, body)
	}
	o, kind, complaints, err := readCBOR(body, single{t.GroupVersionKind(), t.New})
	if kind == nil {
		var tooLarge *cborSizeError
		if errors.As(err, &tooLarge) {
			return d, tooLarge.status()
		}
		return d, unrecognized(t, body, err)
	}
	head := metav1.TypeMeta{Kind: kind.Kind, APIVersion: kind.GroupVersion().String()}
	if err := checkKind(t, body, &head); err != nil {
		return d, err
	}
	if err != nil {
		return d, notHandled(t, head, err.Error())
	}
	d.Object = o
	for _, c := range complaints {
		d.Strict = append(d.Strict, c.Error())
	}
	return d, nil
}

// ReadOptions decodes the options of a verb in CBOR, and returns their kind, which is the given one
// if they have none. It ignores unknown fields.
func ReadOptions(body []byte, kind schema.GroupVersionKind, into runtime.Object) (*schema.GroupVersionKind, error) {
	_, said, _, err := readCBOR(body, single{kind, func() runtime.Object { return into }})
	var tooLarge *cborSizeError
	if errors.As(err, &tooLarge) {
		return said, tooLarge.status()
	}
	return said, err
}

// configurationCBOR is an applied configuration in CBOR as JSON.
func configurationCBOR(body []byte) ([]byte, error) {
	err, late := checkCBOR(body)
	var tooLarge *cborSizeError
	if errors.As(err, &tooLarge) {
		return nil, tooLarge.status()
	}
	var config map[string]any
	if err == nil {
		err = direct.Unmarshal(body, &config)
	}
	if err == nil {
		err = late
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(config)
}
