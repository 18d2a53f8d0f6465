package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// A decoder makes much of little: an empty message of two bytes becomes a container of
// 600, `{},` and `null,` too. So bodies are weighed first.
const (
	// maxObjects bounds the objects of a body in JSON, beside those of managed fields,
	// which are not decoded. Large definitions of custom resources have 35,000.
	maxObjects = 100_000
	// maxWeight bounds what a message becomes, in bytes.
	maxWeight = 64 << 20
)

var (
	errTooMany  = fmt.Errorf("the body has more than %d objects", maxObjects)
	errTooHeavy = fmt.Errorf("the body takes more than %d bytes of memory", maxWeight)
)

// checkObjects refuses JSON of too many objects. Null counts as one.
func checkObjects(data []byte) error {
	const least = 3 // bytes of an object and a comma
	if len(data) < least*maxObjects || bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("null")) <= maxObjects {
		return nil // as nearly always
	}
	n := 0
	for i := 0; i < len(data) && n <= maxObjects; i++ {
		switch data[i] {
		case '{', 'n':
			n++
		case '"':
			end := closingQuote(data, i+1)
			if end < 0 {
				return nil // the decoder says it better
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
	if n > maxObjects {
		return errTooMany
	}
	return nil
}

// fieldsName is the member whose objects are kept as they are.
const fieldsName = `"fieldsV1"`

// weights are what the fields of a message of a type take.
type weights map[protowire.Number]weight

type weight struct {
	size  int     // of each value, beside its bytes
	inner weights // of those of a message
}

// weighed are the weights of types.
var weighed struct {
	sync.Mutex
	types map[reflect.Type]weights
}

// weightsOf returns those of a type.
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
	w := weights{}
	weighed.types[t] = w // types hold themselves
	for i := range t.NumField() {
		parts := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		if n, err := strconv.Atoi(parts[1]); err == nil {
			w[protowire.Number(n)] = weightOf(t.Field(i).Type)
		}
	}
	return w
}

// weightOf is what each value of a field takes.
func weightOf(t reflect.Type) weight {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		t = t.Elem()
	case reflect.Map: // an entry is a message of a key and a value
		const entry = 48
		value := weightOf(t.Elem())
		return weight{entry + int(t.Key().Size()) + int(t.Elem().Size()), weights{2: value}}
	case reflect.Struct:
		return weight{inner: structWeights(t)} // a part of what holds it
	default:
		return weight{}
	}
	return weight{int(t.Size()), structWeights(t)}
}

func structWeights(t reflect.Type) weights {
	if t.Kind() != reflect.Struct {
		return nil
	}
	return makeWeights(t)
}

// weigh takes what a message becomes from what is left, until nothing is.
func (w weights) weigh(message []byte, left *int) {
	for len(message) > 0 && *left > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		field := w[number]
		*left -= field.size
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
		if field.inner != nil {
			field.inner.weigh(value, left)
		} else {
			*left -= len(value)
		}
	}
}
