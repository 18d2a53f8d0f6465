package wire

import "github.com/tidemark-dev/tidemark/internal/resource"

// Transcodes reports whether the message of a stored value is made without its object.
func Transcodes(t *resource.Type, value []byte) (planned, done bool) {
	p := planOf(t)
	if p == nil {
		return false, false
	}
	_, done = p.transcode(nil, value)
	return true, done
}
