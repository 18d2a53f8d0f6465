package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/tidemark-dev/tidemark/internal/quantity"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Decoding can multiply the size of a body: an empty message of two bytes becomes a struct
// of 600, as do `{},` and `null,`. So bodies are weighed first.
const (
	// maxObjects bounds the objects in a JSON body, without those of managed fields, which
	// are not decoded. Large CustomResourceDefinitions have 35,000.
	maxObjects = 100_000
	// maxWeight bounds the memory of a decoded message, in bytes.
	maxWeight = 64 << 20
	// maxValues is the maximum number of values in a body: members, elements, and fields of messages.
	// Each value can be invalid, and the libraries' validation reports all errors, which take up to
	// several kilobytes each. As in CBOR, the text of managed fields counts, not the values in it.
	maxValues = maxItems
	// valueBytes is the length of a part of a usual body that takes as much work as an invalid value,
	// about 7 us. See Work.
	valueBytes = 128
)

var (
	errTooMany  = fmt.Errorf("the body has more than %d objects", maxObjects)
	errValues   = fmt.Errorf("the body has more than %d values", maxValues)
	errTooHeavy = fmt.Errorf("the body takes more than %d bytes of memory", maxWeight)
)

// Work estimates the work of a write with a body. It returns the length in bytes of a usual body that
// takes as much work, at most that of the largest body. A value takes about the same work whatever its
// length, so a body of many short values takes more work than its length suggests.
func Work(t *resource.Type, m MediaType, body []byte) int {
	const small = 2 << 10 // such a body has too few values to matter
	if len(body) <= small {
		return len(body)
	}
	values := 0
	switch m {
	case Protobuf:
		if envelope, err := OpenEnvelope(body); err == nil && CheckNesting(envelope.Raw) == nil {
			w := weighing{left: maxWeight}
			weightsOf(reflect.TypeOf(t.New()).Elem()).weigh(envelope.Raw, &w)
			values = w.values
		}
	case CBOR:
		c := cborCheck{rest: body}
		_ = c.all()
		values = c.items
	case YAML:
		if bytes.IndexByte(body, '&') >= 0 { // an alias stands for any number
			return maxAsJSON
		}
		values = bytes.Count(body, []byte(",")) + bytes.Count(body, []byte("\n"))
	default:
		values = bytes.Count(body, []byte(",")) // some are in strings
	}
	return max(len(body), min(values*valueBytes, maxAsJSON))
}

// checkObjects refuses JSON with too many objects or too many values. It counts null as an object, and
// commas for values.
func checkObjects(data []byte) error {
	const least = 2 // bytes of a value and a comma
	if len(data) < least*maxObjects || bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("null")) <= maxObjects && bytes.Count(data, []byte(",")) <= maxValues {
		return nil // the usual case
	}
	n, values := 0, 0
	for i := 0; i < len(data) && n <= maxObjects && values <= maxValues; i++ {
		switch data[i] {
		case ',':
			values++
		case '{', 'n':
			n++
		case '"':
			end := closingQuote(data, i+1)
			if end < 0 {
				return nil // the decoder has a better error
			}
			if string(data[i:end+1]) != fieldsName {
				i = end
				continue
			}
			at := end + 1
			for at < len(data) && (data[at] == ':' || data[at] == ' ') {
				at++
			}
			if i = at; at < len(data) && data[at] == '{' {
				if i = closing(data, at); i < 0 {
					return nil
				}
			}
			i--
		}
	}
	switch {
	case n > maxObjects:
		return errTooMany
	case values > maxValues:
		return errValues
	}
	return nil
}

// fieldsName is the member whose objects stay JSON.
const fieldsName = `"fieldsV1"`

// weights are the sizes of the fields of a message type, by field number.
type weights []weight

type weight struct {
	name    string  // of the field; empty: it has none, as the key of a map
	size    int     // of each value, beside its bytes
	inner   weights // of those of a message
	content content // of the bytes of a field that is not a message
}

// content is the required content of a field's bytes. The generated decoders accept any
// bytes, which would then be shown as other characters, or break the JSON around them.
type content uint8

const (
	anyBytes content = iota
	textBytes
	jsonBytes
	jsonOrNone
	quantityBytes
)

var (
	errNoText = errors.New("a string is not valid UTF-8")
	errNoJSON = errors.New("a field that holds JSON holds something else")
)

// check returns an error when the bytes do not have the content.
func (c content) check(value []byte) error {
	switch {
	case c == anyBytes, c == jsonOrNone && len(value) == 0:
		return nil
	case c == quantityBytes:
		return quantity.Check(string(value))
	case c == textBytes:
		if !utf8.Valid(value) {
			return errNoText
		}
		return nil
	case !jsontext.Value(value).IsValid(): // or it has a duplicate key
		if !utf8.Valid(value) {
			return errNoText
		}
		if !json.Valid(value) {
			return errNoJSON
		}
	}
	return CheckDepth(value)
}

// weighing is the state of one pass over a message.
type weighing struct {
	left   int // rest of maxWeight
	values int // the number of fields so far, with those of inner messages
	// err is the first error about the content of a field; nil: none yet.
	err error
	// path of that field.
	path []string
}

// fieldErr returns err with the path of the field.
func (w *weighing) fieldErr() error {
	if w.err == nil || len(w.path) == 0 {
		return w.err
	}
	slices.Reverse(w.path)
	return fmt.Errorf("%s: %w", strings.Join(w.path, "."), w.err)
}

// weighed holds the weights of types. See the package comment.
var weighed struct {
	sync.Mutex
	types map[reflect.Type]weights
}

// weightsOf returns the weights of a type.
func weightsOf(t reflect.Type) weights {
	weighed.Lock()
	defer weighed.Unlock()
	if weighed.types == nil {
		weighed.types = map[reflect.Type]weights{}
	}
	return makeWeights(t)
}

func makeWeights(t reflect.Type) weights {
	if w, ok := weighed.types[t]; ok {
		return w
	}
	last := 0
	for i := range t.NumField() {
		last = max(last, fieldNumber(t.Field(i)))
	}
	w := make(weights, last+1)
	weighed.types[t] = w // types may be recursive
	for i := range t.NumField() {
		if n := fieldNumber(t.Field(i)); n > 0 {
			w[n] = weightOf(t.Field(i).Type)
			_, name, _ := strings.Cut(t.Field(i).Tag.Get("protobuf"), "name=")
			w[n].name, _, _ = strings.Cut(name, ",")
		}
	}
	return w
}

// fieldNumber returns the number of a field in its message; zero: it has none.
func fieldNumber(f reflect.StructField) int {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0
	}
	return n
}

// weightOf returns the weight of a field's value.
func weightOf(t reflect.Type) weight {
	if t == quantityType { // a message of one field
		return weight{inner: weights{1: {content: quantityBytes}}}
	}
	if customKinds[t] == planRaw { // a message of one field
		raw := weight{content: jsonBytes}
		if t == reflect.TypeFor[apiextensions.JSON]() { // it writes nothing as null
			raw.content = jsonOrNone
		}
		return weight{inner: weights{1: raw}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		w := weightOf(t.Elem())
		w.size = int(t.Elem().Size())
		return w
	case reflect.Slice:
		w := weightOf(t.Elem())
		w.size = int(t.Elem().Size())
		if isMessage(t) { // a message of one field, which is the list
			return weight{inner: weights{1: w}}
		}
		return w
	case reflect.Map: // an entry is a message of a key and a value
		const entry = 48
		return weight{size: entry + int(t.Key().Size()) + int(t.Elem().Size()), inner: weights{1: weightOf(t.Key()), 2: weightOf(t.Elem())}}
	case reflect.Struct:
		return weight{inner: makeWeights(t)} // a part of the enclosing type
	case reflect.String:
		return weight{content: textBytes}
	}
	return weight{}
}

// weigh subtracts the size of a message until nothing is left, and checks the content of
// its fields.
func (w weights) weigh(message []byte, to *weighing) {
	for len(message) > 0 && to.left > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if to.values++; to.values > maxValues {
			to.left = 0
			return
		}
		var field weight
		if int(number) < len(w) {
			field = w[number]
		}
		to.left -= field.size
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return
		}
		message = message[n:]
		known := to.err
		if field.inner != nil {
			field.inner.weigh(value, to)
		} else {
			to.left -= len(value)
			if to.err == nil {
				to.err = field.content.check(value)
			} else if field.content == quantityBytes && quantity.Check(string(value)) != nil {
				to.err, to.path = quantity.ErrTooLarge, nil // must not be decoded
			}
		}
		if known == nil && to.err != nil && field.name != "" {
			to.path = append(to.path, field.name)
		}
	}
}
