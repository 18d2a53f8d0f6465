package wire

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	goyaml "go.yaml.in/yaml/v2" // the decoder of sigs.k8s.io/yaml
	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/quantity"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// MediaType is a serialization of one object.
type MediaType string

const (
	JSON     MediaType = "application/json"
	YAML     MediaType = "application/yaml"
	Protobuf MediaType = "application/vnd.kubernetes.protobuf"
	CBOR     MediaType = "application/cbor" // where a server has it switched on
)

// maxDepth is how deep a body may nest.
const maxDepth = 512

// Decoded is an object from a request body.
type Decoded struct {
	Object runtime.Object
	// Strict are the errors of field validation, unknown and duplicate fields, in the order
	// of kube-apiserver.
	Strict []string
}

// Decode reads an object of the type from a request body. Unknown fields are dropped and
// reported in Strict. The body may lack kind and apiVersion. Errors are
// *apierrors.StatusError with the text of kube-apiserver.
func Decode(t *resource.Type, m MediaType, body []byte) (Decoded, error) {
	var d Decoded
	switch m {
	case Protobuf:
		d.Object = t.New()
		return d, decodeProtobuf(t, body, d.Object)
	case CBOR:
		return decodeCBOR(t, body)
	}
	if !utf8.Valid(body) {
		return d, unrecognized(t, body, errors.New("the body is not valid UTF-8"))
	}
	data := body
	if m == YAML {
		var err error
		if data, d.Strict, err = fromYAML(body); err != nil {
			return d, unrecognized(t, body, err)
		}
	}
	if err := CheckDepth(data); err != nil {
		return d, unrecognized(t, body, err)
	}
	var strict []error
	var err error
	if t.Custom != nil {
		return d, d.decodeTree(t, data, body)
	}
	d.Object, strict, err = unmarshalStrict(data, t.New)
	if kind := d.Object.GetObjectKind().GroupVersionKind(); err == nil && len(strict) == 0 && kind == t.GroupVersionKind() {
		return d, nil // the usual case
	}
	// An error about the kind takes precedence over errors about fields.
	head, typeErr := TypeMeta(data)
	if typeErr != nil {
		return d, unrecognized(t, body, typeErr)
	}
	if err := checkKind(t, body, &head); err != nil {
		return d, err
	}
	if err != nil {
		return d, notHandled(t, head, err.Error())
	}
	for _, s := range strict {
		d.Strict = append(d.Strict, s.Error())
	}
	return d, nil
}

// decodeTree reads an object whose type has its own decoder. The body has to have a kind
// and an apiVersion, which the caller checks.
func (d *Decoded) decodeTree(t *resource.Type, data, body []byte) error {
	head, err := TypeMeta(data)
	if err == nil && head.Kind == "" {
		err = errors.New("Object 'Kind' is missing in '" + string(bytes.TrimSpace(data)) + "'")
	}
	if err == nil {
		_, err = schema.ParseGroupVersion(head.APIVersion)
	}
	if err != nil {
		return unrecognized(t, body, err)
	}
	var complaints []string
	if d.Object, complaints, err = t.Custom.Decode(data); err != nil {
		return notHandled(t, head, err.Error())
	}
	d.Strict = append(d.Strict, complaints...)
	return nil
}

// StrictError is the response to a body that fails strict field validation.
func StrictError(t *resource.Type, complaints []string) *apierrors.StatusError {
	head := metav1.TypeMeta{Kind: t.Kind, APIVersion: t.GroupVersion().String()}
	return notHandled(t, head, "strict decoding error: "+strings.Join(complaints, ", ")).StatusError
}

// maxDuplicates is the maximum number of duplicate keys in a YAML body. The error has a line for each, which is about
// twenty times as long as the key.
const maxDuplicates = 1_000

// fromYAML converts YAML to JSON. A duplicate key is a strict error.
func fromYAML(body []byte) (data []byte, strict []string, err error) {
	if err := checkYAML(body); err != nil {
		return nil, nil, err
	}
	if data, err = yaml.YAMLToJSONStrict(body); err == nil {
		return data, nil, nil
	}
	var wrong *goyaml.TypeError
	if errors.As(err, &wrong) && len(wrong.Errors) > maxDuplicates {
		return nil, nil, fmt.Errorf("it has more than %d duplicate keys", maxDuplicates)
	}
	complaint := err.Error()
	if data, err = yaml.YAMLToJSON(body); err != nil {
		return nil, nil, err
	}
	return data, []string{complaint}, nil
}

// TypeMeta reads the kind and apiVersion of a body. The struct is anonymous and its members
// match in any case, since error messages show both to clients.
func TypeMeta(data []byte) (metav1.TypeMeta, error) {
	var head struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return metav1.TypeMeta{}, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return metav1.TypeMeta{Kind: head.Kind, APIVersion: head.APIVersion}, nil
}

// checkKind compares the kind and apiVersion of a body with the type. Missing ones are
// filled in.
func checkKind(t *resource.Type, body []byte, head *metav1.TypeMeta) error {
	want := t.GroupVersion().String()
	if head.Kind == "" {
		head.Kind = t.Kind
	}
	if head.APIVersion == "" {
		head.APIVersion = want
	}
	if head.Kind == t.Kind && head.APIVersion == want {
		return nil
	}
	got, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return unrecognized(t, body, err)
	}
	relation := resource.UnknownKind
	if t.Strategy.Relation != nil {
		relation = t.Strategy.Relation(got.WithKind(head.Kind))
	}
	switch relation {
	case resource.OtherVersion:
		message := fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", head.APIVersion, want)
		return &BodyError{apierrors.NewBadRequest(message), message}
	case resource.NotConverted:
		message := fmt.Sprintf("no kind is registered for the type %s.%s in scheme %q", t.Version, t.Kind, "pkg/runtime/scheme.go:111")
		return &BodyError{apierrors.NewBadRequest(message), message}
	case resource.OtherKind:
		return notHandled(t, *head, fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion", got.Version, head.Kind, shortGroup(t), t.Kind))
	}
	return notHandled(t, *head, fmt.Sprintf("no kind %q is registered for version %q in scheme %q", head.Kind, head.APIVersion, "pkg/runtime/scheme.go:111"))
}

// shortGroup returns the stored group as error messages have it: "core", "apps", "rbac".
func shortGroup(t *resource.Type) string {
	group := t.StoredVersion().Group
	if group == "" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}

// A BodyError refuses a body that cannot be decoded. Cause is the error without the text
// around it.
type BodyError struct {
	*apierrors.StatusError
	Cause string
}

func notHandled(t *resource.Type, head metav1.TypeMeta, why string) *BodyError {
	version := head.APIVersion
	if version == t.GroupVersion().String() {
		version = t.Version
	} else if i := bytes.IndexByte([]byte(version), '/'); i >= 0 {
		version = version[i+1:]
	}
	return &BodyError{apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", head.Kind, version, t.Kind, why)), why}
}

func unrecognized(t *resource.Type, body []byte, err error) error {
	message := fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", t.Kind, err, summary(body))
	return &BodyError{apierrors.NewBadRequest(message), err.Error()}
}

// summary returns the beginning of a body.
func summary(body []byte) string {
	const most = 30
	cut := ""
	if len(body) > most {
		body, cut = body[:most], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(body) + cut
	}
	return hex.EncodeToString(body) + cut
}

// CheckDepth refuses a body that nests too deep, before a decoder recurses into it, or that
// has too many objects.
func CheckDepth(data []byte) error {
	if err := checkObjects(data); err != nil {
		return err
	}
	if bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("[")) <= maxDepth {
		return nil // the usual case, and much faster
	}
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return errTooDeep
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

var errTooDeep = fmt.Errorf("the body nests deeper than %d", maxDepth)

// CheckNesting returns an error for a protobuf message that nests too deeply for a decoder, which recurses into it.
func CheckNesting(message []byte) error {
	if nestsDeeper(message, maxDepth) {
		return errTooDeep
	}
	return nil
}

// nestsDeeper reports whether a protobuf message may nest deeper than a limit. A string
// that parses as a message counts as one.
func nestsDeeper(b []byte, depth int) bool {
	if depth == 0 {
		return true
	}
	if len(b) < 2*depth {
		return false // each level takes a tag and a length
	}
	for len(b) > 0 {
		_, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false // no message
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(1, typ, b); n < 0 {
				return false
			}
			b = b[n:]
			continue
		}
		inner, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return false
		}
		if nestsDeeper(inner, depth-1) {
			return true
		}
		b = b[n:]
	}
	return false
}

type unmarshaler interface{ Unmarshal([]byte) error }

// decodeProtobuf reads a body in Kubernetes' protobuf envelope.
func decodeProtobuf(t *resource.Type, body []byte, into runtime.Object) error {
	envelope, err := OpenEnvelope(body)
	if err != nil {
		return unrecognized(t, body, err)
	}
	if err := CheckNesting(envelope.Raw); err != nil {
		return unrecognized(t, nil, err)
	}
	weighed := weighing{left: maxWeight}
	weightsOf(reflect.TypeOf(into).Elem()).weigh(envelope.Raw, &weighed)
	switch {
	case weighed.values > maxValues:
		return unrecognized(t, nil, errValues)
	case weighed.left <= 0:
		return unrecognized(t, nil, errTooHeavy)
	}
	head := metav1.TypeMeta{Kind: envelope.Kind, APIVersion: envelope.APIVersion}
	if err := checkKind(t, body, &head); err != nil {
		return err
	}
	u, ok := into.(unmarshaler)
	if !ok {
		return notHandled(t, head, "the kind has no protobuf form")
	}
	if errors.Is(weighed.err, quantity.ErrTooLarge) {
		return notHandled(t, head, weighed.fieldErr().Error())
	}
	if err := u.Unmarshal(envelope.Raw); err != nil {
		return notHandled(t, head, err.Error())
	}
	if weighed.err != nil {
		return unrecognized(t, nil, weighed.fieldErr())
	}
	return nil
}

// Encoded is an object as it is stored: JSON that begins with Head(t), without the digits
// of its resource version, which belong at RevisionAt.
type Encoded struct {
	Bytes      []byte
	RevisionAt int
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// placeholder stands for the digits while an object is encoded: an empty member would be
// left out.
const placeholder = "0"

var versionMember = []byte(`"resourceVersion":"`)

// Encode encodes an object of the type. Its metadata.resourceVersion is ignored: Bytes
// holds `"resourceVersion":""`, and RevisionAt is the offset between the quotes. Encode
// changes the object's kind, apiVersion and resourceVersion.
//
// The first member of that name is the object's own: only kind, apiVersion, the names and
// the uid precede it, and no string contains an unescaped quote.
func Encode(t *resource.Type, o runtime.Object) (Encoded, error) {
	o.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind())
	meta, ok := o.(metav1.Object)
	if !ok {
		return Encoded{}, fmt.Errorf("%T has no metadata", o)
	}
	meta.SetResourceVersion(placeholder)
	buffer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buffer)
	buffer.Reset()
	if err := json.NewEncoder(buffer).Encode(o); err != nil {
		return Encoded{}, err
	}
	meta.SetResourceVersion("")
	text := bytes.TrimRight(buffer.Bytes(), "\n")
	head := Head(t)
	at := bytes.Index(text, versionMember)
	if at < 0 || !bytes.HasPrefix(text, []byte(head)) {
		return Encoded{}, fmt.Errorf("%T does not begin with kind, apiVersion and metadata", o)
	}
	at += len(versionMember)
	out := make([]byte, 0, len(text)-len(placeholder))
	out = append(append(out, text[:at]...), text[at+len(placeholder):]...)
	return Encoded{Bytes: out, RevisionAt: at}, nil
}

// Head returns the bytes that every stored object of the type begins with:
// `{"kind":"Pod","apiVersion":"v1",`. An item of a list begins with `{` in place of them.
func Head(t *resource.Type) string {
	return `{"kind":"` + t.Kind + `","apiVersion":"` + t.GroupVersion().String() + `",`
}

// As returns a stored value in the type's own version: unchanged where that is the stored
// version, converted otherwise.
func As(ctx context.Context, t *resource.Type, value []byte) ([]byte, error) {
	if c := t.Conversion; c == nil || c.AlreadyCurrent != nil && c.AlreadyCurrent(value) {
		return value, nil
	}
	o, err := Read(ctx, t, value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// Read returns a stored value as a new object in the type's own version.
func Read(ctx context.Context, t *resource.Type, value []byte) (runtime.Object, error) {
	if t.Conversion == nil {
		return Unmarshal(value, t.New)
	}
	stored, err := Unmarshal(value, t.Conversion.Stored.New)
	if err != nil {
		return nil, err
	}
	version := stored.(metav1.Object).GetResourceVersion()
	o, err := t.Conversion.FromStored(ctx, stored)
	if err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind())
	o.(metav1.Object).SetResourceVersion(version)
	return o, nil
}

// AsAll is As for several values, for a type that a webhook converts in one call.
func AsAll(ctx context.Context, t *resource.Type, values [][]byte) ([][]byte, error) {
	objects := make([]runtime.Object, len(values))
	versions := make([]string, len(values))
	for i, value := range values {
		o, err := Unmarshal(value, t.Conversion.Stored.New)
		if err != nil {
			return nil, err
		}
		objects[i], versions[i] = o, o.(metav1.Object).GetResourceVersion()
	}
	objects, err := t.Conversion.FromStoredAll(ctx, objects)
	if err != nil {
		return nil, err
	}
	made := make([][]byte, len(objects))
	for i, o := range objects {
		o.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind())
		o.(metav1.Object).SetResourceVersion(versions[i])
		if made[i], err = json.Marshal(o); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// View returns the view of a subresource on a stored object, as JSON. It may change the
// object.
func View(s *resource.Subresource, stored runtime.Object, of resource.Purpose) ([]byte, error) {
	o, err := s.View(stored, of)
	if err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(s.Exchange.GroupVersionKind())
	return json.Marshal(o)
}
