package etcdvalue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	fastjson "github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Codec translates between the JSON of the store and the values of etcd. Its zero value has the
// keys of DefaultPrefix and no encryption. It is safe for concurrent use, and must not be copied
// after its first use.
type Codec struct {
	Keys   Keys
	active *encryption.Active // nil: nothing is encrypted
}

// Decoded is an object from etcd.
type Decoded struct {
	// JSON is the object as a store.Write has it, without the digits of its resource version,
	// which belong at RevisionAt.
	JSON       []byte
	RevisionAt int
	// Outdated reports that the object would be stored in another version, in another form or
	// with another key now. An update that changes nothing else has to write it.
	Outdated bool
}

// Object returns the object for the store.
func (d Decoded) Object(key string, created, modified store.Revision) *store.Object {
	value := make([]byte, 0, len(d.JSON)+20)
	value = append(value, d.JSON[:d.RevisionAt]...)
	value = strconv.AppendUint(value, uint64(modified), 10)
	value = append(value, d.JSON[d.RevisionAt:]...)
	return &store.Object{Key: key, Held: value, Created: created, Modified: modified, RevisionAt: int32(d.RevisionAt)}
}

// The first bytes of the forms. YAML has none: it is tried last, as kube-apiserver does.
const (
	protobufMark = "k8s\x00"
	cborMark     = "\xd9\xd9\xf7"
)

// VersionError: a value names a kind or a version that cannot be read.
type VersionError struct {
	Collection string
	// Kind is that of the value.
	Kind schema.GroupVersionKind
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("a stored value of %s has the kind %s of %s, which this server does not read", e.Collection, e.Kind.Kind, e.Kind.GroupVersion())
}

// Encode returns the value of an object of the collection as etcd holds it, not encrypted. The
// object is JSON of the store, and revisionAt the place of the digits of its resource version,
// which may be there or not.
func (c *Codec) Encode(collection string, object []byte, revisionAt int) ([]byte, error) {
	object, err := withoutDigits(object, revisionAt)
	if err != nil {
		return nil, fmt.Errorf("encoding an object of %s: %w", collection, err)
	}
	k := builtins().byName[collection]
	var value []byte
	switch {
	case k == nil:
		value, err = encodeCustom(object, revisionAt)
	case k.form == inDefinition:
		value, err = encodeDefinition(object)
	case k.form == inJSON:
		value, err = encodeJSON(k, object)
	default:
		value, err = encodeProtobuf(k, object)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding an object of %s: %w", collection, err)
	}
	return value, nil
}

// withoutDigits returns an object with an empty resource version. It copies the object if it has
// digits.
func withoutDigits(object []byte, at int) ([]byte, error) {
	if at <= 0 || at >= len(object) {
		return nil, fmt.Errorf("the place %d of the resource version is outside of %d bytes", at, len(object))
	}
	n := bytes.IndexByte(object[at:], '"')
	switch {
	case !bytes.HasSuffix(object[:at], []byte(versionMember)) || n < 0 || strings.Trim(string(object[at:at+n]), "0123456789") != "":
		return nil, fmt.Errorf("there is no resource version at %d", at)
	case n == 0:
		return object, nil
	}
	return slices.Concat(object[:at], object[at+n:]), nil
}

func encodeProtobuf(k *kind, object []byte) ([]byte, error) {
	raw, err := wire.MessageOf(k.typ, object)
	if err != nil {
		return nil, err
	}
	head := metav1.TypeMeta{Kind: k.typ.Kind, APIVersion: k.version.String()}
	const most = 32 // bytes of the envelope, besides the kind
	return wire.AppendEnvelope(make([]byte, 0, len(raw)+len(head.Kind)+len(head.APIVersion)+most), head, raw), nil
}

func encodeJSON(k *kind, object []byte) ([]byte, error) {
	o, err := wire.Unmarshal(object, k.typ.New)
	if err != nil {
		return nil, err
	}
	return line(o)
}

// line returns an object as JSON and a newline.
func line(o any) ([]byte, error) {
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(o)
	return b.Bytes(), err
}

// Decode reads a value that is not encrypted.
func (c *Codec) Decode(collection string, value []byte) (Decoded, error) {
	k := builtins().byName[collection]
	if k == nil {
		d, err := decodeCustom(value)
		if err != nil {
			err = fmt.Errorf("decoding a stored custom resource of %s: %w", collection, err)
		}
		return d, err
	}
	o, outdated, err := k.read(value)
	if err != nil {
		return Decoded{}, fmt.Errorf("decoding a stored value of %s: %w", collection, err)
	}
	normalize(o)
	e, err := wire.Encode(k.typ, o)
	if err != nil {
		return Decoded{}, fmt.Errorf("decoding a stored value of %s: %w", collection, err)
	}
	return Decoded{JSON: e.Bytes, RevisionAt: e.RevisionAt, Outdated: outdated}, nil
}

// source is a value whose kind is known.
type source struct {
	kind     schema.GroupVersionKind
	into     func(runtime.Object) error
	protobuf bool
	message  []byte // if it is in protobuf
}

// read decodes a value into the version that the store holds, with defaults.
func (k *kind) read(value []byte) (o runtime.Object, outdated bool, err error) {
	s, err := open(value)
	if err != nil {
		return nil, false, err
	}
	outdated = s.kind.GroupVersion() != k.version || s.protobuf != (k.form == inProtobuf)
	if k.form == inDefinition {
		o, err = readDefinition(k, s)
		return o, outdated, err
	}
	if s.kind.Kind != k.typ.Kind {
		return nil, false, &VersionError{k.collection, s.kind}
	}
	from := s.kind.GroupVersion()
	if older, ok := olderVersions[s.kind]; ok && (s.protobuf || older.inText) {
		o = k.typ.New()
		err = older.read(s, o)
	} else if from == k.version || from == k.typ.GroupVersion() || from.Group == k.version.Group && slices.Contains(k.alike, from.Version) {
		o = k.typ.New()
		err = s.into(o)
	} else {
		o, err = k.convert(s)
	}
	if err != nil {
		return nil, false, err
	}
	if k.typ.Strategy.Default != nil {
		k.typ.Strategy.Default(o)
	}
	return o, outdated, nil
}

// convert reads a value in another version that the server serves.
func (k *kind) convert(s source) (runtime.Object, error) {
	other := k.typ.At(s.kind.GroupVersion().String())
	if other == nil || other.Conversion == nil {
		return nil, &VersionError{k.collection, s.kind}
	}
	o := other.New()
	if err := s.into(o); err != nil {
		return nil, err
	}
	if other.Strategy.Default != nil {
		other.Strategy.Default(o)
	}
	return other.Conversion.ToStored(context.Background(), o) // built-in kinds need no webhook
}

// open reads the kind of a value.
func open(value []byte) (source, error) {
	switch {
	case bytes.HasPrefix(value, []byte(protobufMark)):
		return openProtobuf(value)
	case bytes.HasPrefix(value, []byte(cborMark)):
		text, err := fromCBOR(value)
		if err != nil {
			return source{}, err
		}
		return openText(text)
	case len(bytes.TrimSpace(value)) == 0:
		return source{}, errors.New("the value is empty")
	}
	text := value
	if value[0] != '{' {
		var err error
		if text, err = wire.FromYAML(value); err != nil {
			return source{}, errors.New("the value is neither protobuf nor CBOR, JSON or YAML")
		}
	}
	return openText(text)
}

// unmarshal decodes JSON into an empty value. The faster decoder rejects some inputs that
// Kubernetes' decoder accepts.
func unmarshal(text []byte, into any) error {
	if fastjson.Unmarshal(text, into) == nil {
		return nil
	}
	reflect.ValueOf(into).Elem().SetZero() // it may be half decoded
	return kjson.UnmarshalCaseSensitivePreserveInts(text, into)
}

func openProtobuf(value []byte) (source, error) {
	envelope, err := wire.OpenEnvelope(value)
	if err != nil {
		return source{}, err
	}
	gv, err := schema.ParseGroupVersion(envelope.APIVersion)
	if err != nil {
		return source{}, err
	}
	into := func(o runtime.Object) error {
		m, ok := o.(interface{ Unmarshal([]byte) error })
		if !ok {
			return fmt.Errorf("%T has no protobuf form", o)
		}
		if err := wire.CheckNesting(envelope.Raw); err != nil {
			return err
		}
		return m.Unmarshal(envelope.Raw)
	}
	return source{kind: gv.WithKind(envelope.Kind), protobuf: true, message: envelope.Raw, into: into}, nil
}

// openText opens JSON.
func openText(text []byte) (source, error) {
	var head metav1.TypeMeta
	if err := unmarshal(text, &head); err != nil {
		return source{}, err
	}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return source{}, err
	}
	return source{kind: gv.WithKind(head.Kind), into: func(o runtime.Object) error { return unmarshal(text, o) }}, nil
}

// fromCBOR converts CBOR to JSON with sorted members.
func fromCBOR(value []byte) ([]byte, error) {
	var all map[string]any
	if err := direct.Unmarshal(value, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
