package wire

import "bytes"

// managedFields is the text of a metadata's member up to its list. In the metadata of an object it occurs once at most:
// a quote in a string has a backslash before it, labels and annotations have no lists, and the names in managed fields
// have prefixes.
var managedFields = []byte(`"managedFields":[`)

// AppendUnmanaged appends an object without metadata.managedFields. The object is JSON as written by Encode, As and View;
// kind and apiVersion may be missing.
func AppendUnmanaged(to, value []byte) []byte {
	at := bytes.Index(value, metadataMember)
	if at < 0 {
		return append(to, value...)
	}
	return appendUnmanaged(to, value, at+len(metadataMember)-1)
}

// appendUnmanaged appends a text without the managed fields of the metadata that begins at an index.
func appendUnmanaged(to, text []byte, at int) []byte {
	begin := bytes.Index(text[at:], managedFields)
	if begin < 0 {
		return append(to, text...)
	}
	begin += at
	if closing(text[:begin], at) >= 0 { // it is behind the metadata
		return append(to, text...)
	}
	end := closing(text, begin+len(managedFields)-1)
	switch {
	case end < 0: // it is not valid JSON
		return append(to, text...)
	case text[end] == ',':
		end++
	case text[begin-1] == ',':
		begin--
	}
	return append(append(to, text[:begin]...), text[end:]...)
}
