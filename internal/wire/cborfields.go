package wire

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fieldsInCBOR converts the field sets in an object's managed fields from JSON to CBOR,
// which their own marshaler then copies. The marshaler would decode them into maps first,
// which costs more than the rest of an object.
func fieldsInCBOR(o runtime.Object) {
	meta, ok := o.(metav1.Object)
	if !ok {
		return
	}
	for _, entry := range meta.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		raw := entry.FieldsV1.GetRawBytes()
		if !jsontext.Value(raw).IsValid() { // mostly a duplicate key
			continue
		}
		b, rest, ok := appendFieldsCBOR(make([]byte, 0, len(raw)), raw, maxDepth)
		if ok && len(rest) == 0 {
			entry.FieldsV1.SetRawBytes(b) // otherwise its writer sees to it
		}
	}
}

// appendFieldsCBOR converts a field set at the start of a JSON text: nested objects without
// white space. It returns false for anything else.
func appendFieldsCBOR(to, text []byte, depth int) (_, rest []byte, ok bool) {
	if depth == 0 || len(text) < 2 || text[0] != '{' {
		return to, text, false
	}
	at, n := len(to), uint64(0)
	to, text = append(to, cborMap), text[1:]
	for len(text) > 0 && text[0] != '}' {
		if n > 0 {
			if text[0] != ',' {
				return to, text, false
			}
			text = text[1:]
		}
		if to, text, ok = appendKeyCBOR(to, text); !ok {
			return to, text, false
		}
		if to, text, ok = appendFieldsCBOR(to, text, depth-1); !ok {
			return to, text, false
		}
		n++
	}
	if len(text) == 0 {
		return to, text, false
	}
	var room [9]byte
	head := appendCBORHead(room[:0], cborMap, n)
	to[at] = head[0]
	if len(head) > 1 { // seldom: more than 23 fields
		to = slices.Insert(to, at+1, head[1:]...)
	}
	return to, text[1:], true
}

// appendKeyCBOR converts a member's name, with its colon, at the start of a JSON text.
func appendKeyCBOR(to, text []byte) (_, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return to, text, false
	}
	end := 1
	for end < len(text) && text[end] != '"' {
		if text[end] == '\\' {
			end++
		}
		end++
	}
	if end+1 >= len(text) || text[end+1] != ':' {
		return to, text, false
	}
	key := text[1:end]
	if bytes.IndexByte(key, '\\') >= 0 {
		unquoted, err := jsontext.AppendUnquote(make([]byte, 0, len(key)), text[:end+1])
		if err != nil {
			return to, text, false
		}
		key = unquoted
	}
	to = append(appendCBORHead(to, cborBytes, uint64(len(key))), key...)
	return to, text[end+2:], true
}
