package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidemark-dev/tidemark/internal/quantity"
)

// Decoding a quantity can take minutes: see package quantity. So JSON is checked before it is decoded into
// a type with quantities. One pass over the bytes finds the few bodies with anything that looks like a large
// quantity. Only these are read member by member, because it may be another text, such as a commit in a label.

// CheckQuantities returns an error if JSON for a Go type has a quantity that takes too long to decode.
func CheckQuantities(data []byte, t reflect.Type) error {
	_, err := quantities(data, t, func(text string) (string, error) { return text, quantity.Check(text) })
	return err
}

// boundQuantities returns stored JSON for a Go type with quantity.Bound applied to its quantities.
func boundQuantities(data []byte, t reflect.Type) []byte {
	bounded, err := quantities(data, t, func(text string) (string, error) { return quantity.Bound(text), nil })
	if err != nil { // the decoder returns the error
		return data
	}
	return bounded
}

// quantities calls see for all quantities in JSON for a Go type, unless none can be large, and returns the
// JSON with the results of see in their place. It returns the first error of see, with the path.
func quantities(data []byte, t reflect.Type, see func(text string) (string, error)) ([]byte, error) {
	where := quantitiesOf(t)
	if where == nil || !mayHaveLargeQuantity(data) {
		return data, nil
	}
	r := quantityReader{in: jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), data: data, see: see}
	if err := r.value(where); err != nil {
		if r.refused != nil {
			return nil, r.refused
		}
		return data, nil // the decoder has a better error
	}
	return append(r.out, data[r.copied:]...), nil
}

// mayHaveLargeQuantity reports whether JSON has a number, in a string or not, that is too long for a quantity
// or has too large an exponent. Names and hashes contain such numbers too, such as 9e123 in a UID. So a number
// with a large exponent does not count if a letter, a digit or a hyphen is next to it.
func mayHaveLargeQuantity(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if c := data[i]; c != '.' && c-'0' > 9 {
			continue
		}
		begin := i
		for i < len(data) && (data[i] == '.' || data[i]-'0' <= 9) {
			i++
		}
		if i-begin > quantity.MaxBytes/2 {
			return true
		}
		if i == len(data) || data[i]|0x20 != 'e' {
			continue
		}
		exponent := i + 1
		if exponent < len(data) && (data[exponent] == '+' || data[exponent] == '-') {
			exponent++
		}
		end := exponent
		for end < len(data) && data[end]-'0' <= 9 {
			end++
		}
		if end-exponent < minLargeExponent || inWord(data, begin, end) {
			continue
		}
		if n, err := strconv.Atoi(string(data[exponent:end])); err != nil || n > quantity.MaxExponent {
			return true
		}
	}
	return false
}

// minLargeExponent is the least number of digits of an exponent that is larger than quantity.MaxExponent.
const minLargeExponent = 3

// inWord reports whether the number in data[begin:end] is a part of a longer word. A sign before it
// belongs to it.
func inWord(data []byte, begin, end int) bool {
	if begin > 0 && (data[begin-1] == '-' || data[begin-1] == '+') {
		begin--
	}
	return begin > 0 && wordByte(data[begin-1]) || end < len(data) && wordByte(data[end])
}

func wordByte(c byte) bool { return c == '-' || c-'0' <= 9 || c|0x20-'a' <= 'z'-'a' }

// holders describes where a type has quantities. It is nil for a type without quantities.
type holders struct {
	itself  bool                // it is a quantity
	members map[string]*holders // of a struct, by folded name
	each    *holders            // of the items of a list, or the values of a map
}

var (
	quantityType = reflect.TypeFor[apiresource.Quantity]()
	// held caches the holders of the types that were used. See the package comment.
	held struct {
		sync.RWMutex
		types map[reflect.Type]*holders // of structs
	}
)

// quantitiesOf returns the holders of a type, or of the type that a pointer points to.
func quantitiesOf(t reflect.Type) *holders {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	held.RLock()
	h, known := held.types[t]
	held.RUnlock()
	if known {
		return h
	}
	held.Lock()
	defer held.Unlock()
	if held.types == nil {
		held.types = map[reflect.Type]*holders{}
	}
	return holdersOf(t)
}

// fold returns the same text for names that encoding/json takes for the same member: for some of Kubernetes' types it
// ignores case. The upper case comes first because Unicode has further lower-case forms of s and k.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// holdersOf is quantitiesOf with held locked.
func holdersOf(t reflect.Type) *holders {
	switch {
	case t == quantityType:
		return &holders{itself: true}
	case t.Kind() == reflect.Pointer:
		return holdersOf(t.Elem())
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		if each := holdersOf(t.Elem()); each != nil {
			return &holders{each: each}
		}
		return nil
	case t.Kind() != reflect.Struct, custom(t):
		return nil
	}
	if h, ok := held.types[t]; ok {
		return h
	}
	h := &holders{members: map[string]*holders{}}
	held.types[t] = h // types may be recursive
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := holdersOf(f.Type)
		switch {
		case name == "-" || of == nil:
		case name == "" && f.Anonymous:
			maps.Copy(h.members, of.members)
		default:
			h.members[fold(cmp.Or(name, f.Name))] = of
		}
	}
	if len(h.members) == 0 {
		h = nil
		held.types[t] = nil
	}
	return h
}

// quantityReader reads JSON, and copies it with the results of see.
type quantityReader struct {
	data    []byte
	in      *jsontext.Decoder
	see     func(text string) (string, error)
	path    []string
	out     []byte
	copied  int // bytes of data that out has
	refused error
}

func (r *quantityReader) value(h *holders) error {
	switch kind := r.in.PeekKind(); {
	case h == nil:
		return r.in.SkipValue()
	case h.itself:
		return r.quantity()
	case kind == '{':
		return r.members(h)
	case kind == '[' && h.each != nil:
		return r.items(h.each)
	default:
		return r.in.SkipValue()
	}
}

func (r *quantityReader) members(h *holders) error {
	if _, err := r.in.ReadToken(); err != nil {
		return err
	}
	for r.in.PeekKind() == '"' {
		key, err := r.in.ReadToken()
		if err != nil {
			return err
		}
		name := key.String()
		of := h.each
		if h.members != nil {
			of = h.members[fold(name)]
		}
		r.path = append(r.path, name)
		if err := r.value(of); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
	}
	_, err := r.in.ReadToken()
	return err
}

func (r *quantityReader) items(each *holders) error {
	if _, err := r.in.ReadToken(); err != nil {
		return err
	}
	for i := 0; r.in.PeekKind() != ']'; i++ {
		r.path = append(r.path, strconv.Itoa(i))
		if err := r.value(each); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
	}
	_, err := r.in.ReadToken()
	return err
}

// quantity reads a quantity, a string or a number.
func (r *quantityReader) quantity() error {
	value, err := r.in.ReadValue()
	if err != nil {
		return err
	}
	end := int(r.in.InputOffset())
	begin := end - len(value)
	text := strings.Trim(string(value), `"`) // as Quantity decodes it: without escapes
	seen, err := r.see(text)
	if err != nil {
		r.refused = fmt.Errorf("%s: %w", strings.Join(r.path, "."), err)
		return r.refused
	}
	if seen != text {
		r.out = append(r.out, r.data[r.copied:begin]...)
		r.out = strconv.AppendQuote(r.out, seen)
		r.copied = end
	}
	return nil
}
