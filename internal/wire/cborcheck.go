package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Limits of a CBOR body. A byte of it can stand for several bytes of JSON, and for a
// kilobyte of memory, so limits on its length are not enough.
const (
	// maxAsJSON bounds the size of a body as JSON, in bytes: that of the largest body.
	maxAsJSON = 3 << 20
	// maxItems bounds the data items of a body: keys, values and elements together. The
	// decoder allocates an array at once, up to a kilobyte for each element.
	maxItems = 1 << 18
)

// cborSizeError refuses a body whose decoded size is too large.
type cborSizeError struct{ what string }

func (e *cborSizeError) Error() string { return e.what }

// status returns the response, 413.
func (e *cborSizeError) status() *apierrors.StatusError {
	return apierrors.NewRequestEntityTooLargeError(e.what)
}

var (
	errNotText     = errors.New("cbor: invalid UTF-8 in a byte string that stands for text")
	errManyItems   = &cborSizeError{fmt.Sprintf("the body has more than %d data items", maxItems)}
	errLargeAsJSON = &cborSizeError{fmt.Sprintf("as JSON the body would have more than %d bytes", maxAsJSON)}
)

// cborCheck scans a body before a decoder trusts the lengths in it.
type cborCheck struct {
	rest  []byte
	size  int // as JSON, at least
	items int
	// open are the arrays, maps and tags around the next item.
	open []cborOpen
	// noText: a byte string that stands for text is not valid UTF-8.
	noText bool
}

// cborOpen is a container, or a tag.
type cborOpen struct {
	left       uint64 // items to come
	indefinite bool   // until a break
	binary     bool   // a byte string in it is no text: tags 21 to 23
}

// checkCBOR refuses a body that costs more than its length suggests: deep nesting, many
// elements. A body that is not CBOR is left to the decoder and its error messages. The
// second error is about a part that the decoder accepts without checking it.
func checkCBOR(body []byte) (err, late error) {
	c := cborCheck{rest: body}
	if err := c.all(); err != nil {
		return err, nil
	}
	if c.noText {
		return nil, errNotText
	}
	return nil, nil
}

func (c *cborCheck) all() error {
	for len(c.rest) > 0 {
		if ok, err := c.item(); !ok || err != nil {
			return err
		}
		for len(c.open) > 0 && !c.top().indefinite && c.top().left == 0 {
			c.close()
		}
		if len(c.open) == 0 {
			return nil // the decoder reports the rest
		}
	}
	return nil
}

func (c *cborCheck) top() *cborOpen { return &c.open[len(c.open)-1] }

func (c *cborCheck) close() { c.open = c.open[:len(c.open)-1] }

// item reads the head of the next item. It returns false when that is not CBOR.
func (c *cborCheck) item() (ok bool, err error) {
	if c.rest[0] == cborBreak {
		if len(c.open) == 0 || !c.top().indefinite {
			return false, nil
		}
		c.rest = c.rest[1:]
		c.close()
		return true, nil
	}
	outer := cborOpen{}
	if len(c.open) > 0 {
		outer = *c.top()
		c.top().left--
	}
	major, n, length := cborHead(c.rest)
	indefinite := c.rest[0]&0x1f == 31 && major >= cborBytes && major <= cborMap
	if indefinite {
		length = 1
	}
	if length == 0 {
		return false, nil
	}
	c.rest = c.rest[length:]
	c.size += 2 // at least a digit and a separator
	switch major {
	case cborBytes, cborText:
		if indefinite {
			return true, c.enter(cborOpen{indefinite: true, binary: outer.binary})
		}
		return c.text(n, major == cborText || outer.binary)
	case cborArray, cborMap:
		return true, c.enter(cborOpen{left: n << (major >> 5 & 1), indefinite: indefinite})
	case cborTag:
		return true, c.enter(cborOpen{left: 1, binary: n >= 21 && n <= 23})
	}
	return true, c.small()
}

// enter begins a container.
func (c *cborCheck) enter(o cborOpen) error {
	if len(c.open) >= maxDepth {
		return errTooDeep
	}
	if !o.indefinite && o.left > uint64(len(c.rest)) {
		o.left = uint64(len(c.rest)) + 1 // more than the body can have
	}
	c.open = append(c.open, o)
	return c.small()
}

// text reads a string. The decoder itself checks a string that is declared as text.
func (c *cborCheck) text(n uint64, anything bool) (ok bool, err error) {
	if n > uint64(len(c.rest)) {
		return false, nil
	}
	if !anything && !utf8.Valid(c.rest[:n]) {
		c.noText = true
	}
	c.size += int(n)
	c.rest = c.rest[n:]
	return true, c.small()
}

// small counts an item, and returns an error when the body exceeds a limit.
func (c *cborCheck) small() error {
	c.items++
	switch {
	case c.items > maxItems:
		return errManyItems
	case c.size > maxAsJSON:
		return errLargeAsJSON
	}
	return nil
}

const cborBreak = 0xff
