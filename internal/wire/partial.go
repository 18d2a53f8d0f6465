package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	fastjson "github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var metadataMember = []byte(`"metadata":{`)

// AppendPartial appends a PartialObjectMetadata, given the metadata that MetadataOf
// returns.
func AppendPartial(to, meta []byte, out Output) []byte {
	to = append(to, `{"kind":"PartialObjectMetadata","apiVersion":"`...)
	to = append(to, out.metaVersion()...)
	to = append(to, `","metadata":`...)
	if out.Unmanaged {
		to = appendUnmanaged(to, meta, 0)
	} else {
		to = append(to, meta...)
	}
	return append(to, '}')
}

// partialOf decodes metadata into a PartialObjectMetadata.
func partialOf(meta []byte) (*metav1.PartialObjectMetadata, error) {
	o := new(metav1.PartialObjectMetadata)
	if fastjson.Unmarshal(meta, &o.ObjectMeta) != nil {
		o.ObjectMeta = metav1.ObjectMeta{} // it may be half decoded
		if err := json.Unmarshal(meta, &o.ObjectMeta); err != nil {
			return nil, fmt.Errorf("reading metadata: %w", err)
		}
	}
	return o, nil
}

// MetadataOf returns the metadata of an object as JSON, as written by Encode, As and View.
// It returns a part of the value: the first member with that name, since only kind and
// apiVersion precede it and no string contains an unescaped quote.
func MetadataOf(value []byte) ([]byte, error) {
	at := bytes.Index(value, metadataMember)
	if at < 0 {
		return nil, fmt.Errorf("an object of %d bytes has no metadata", len(value))
	}
	at += len(metadataMember) - 1
	end := closing(value, at)
	if end < 0 {
		return nil, fmt.Errorf("the metadata of an object of %d bytes has no end", len(value))
	}
	return value[at:end], nil
}

// closing returns the index after the object that begins at an index, -1 when it does not
// end. The text is valid JSON.
func closing(b []byte, at int) int {
	depth := 0
	for i := at; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			if i = closingQuote(b, i+1); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// closingQuote returns the index of the quote that ends a string whose text begins at an
// index, -1 when there is none.
func closingQuote(b []byte, at int) int {
	for {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return -1
		}
		if !endsEscaped(b[at : at+n]) {
			return at + n
		}
		at += n + 1
	}
}
