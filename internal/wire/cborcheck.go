package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What a body in CBOR may be. In it a byte can stand for what takes several in JSON and
// a kilobyte in memory, so its limits are not those of its length.
const (
	// maxAsJSON bounds what a body is in JSON, in bytes: the size of the largest body.
	maxAsJSON = 3 << 20
	// maxItems bounds its data items: keys, values and elements, all together. The
	// decoder makes an array at once, of a kilobyte for each element at the worst.
	maxItems = 1 << 18
)

// cborSizeError is about a body that is larger than it looks.
type cborSizeError struct{ what string }

func (e *cborSizeError) Error() string { return e.what }

// status is the answer: 413.
func (e *cborSizeError) status() *apierrors.StatusError {
	return apierrors.NewRequestEntityTooLargeError(e.what)
}

var (
	errNotText     = errors.New("cbor: invalid UTF-8 in a byte string that stands for text")
	errManyItems   = &cborSizeError{fmt.Sprintf("the body has more than %d data items", maxItems)}
	errLargeAsJSON = &cborSizeError{fmt.Sprintf("as JSON the body would have more than %d bytes", maxAsJSON)}
)

// cborCheck goes through a body once, before a decoder trusts its numbers.
type cborCheck struct {
	rest  []byte
	size  int // as JSON, at least
	items int
	// open are the arrays, maps and tags around the next item.
	open []cborOpen
	// noText: a byte string that stands for text is none.
	noText bool
}

// cborOpen is an item that holds others.
type cborOpen struct {
	left       uint64 // items that are still to come
	indefinite bool   // they come until a break
	binary     bool   // a byte string in it is no text: tags 21 to 23
}

// checkCBOR refuses what would cost more than its length says: deep nesting, many
// elements. What is no CBOR at all is left to the decoder, which says it better. What the
// decoder takes and does not look at is returned as a second error.
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
			return nil // what follows is not for us to say
		}
	}
	return nil
}

func (c *cborCheck) top() *cborOpen { return &c.open[len(c.open)-1] }

func (c *cborCheck) close() { c.open = c.open[:len(c.open)-1] }

// item takes the head of the next item and what is no item in it. It is not ok when
// that is no CBOR.
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
	c.size += 2 // at least a digit and what separates it from the next
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

// enter begins an item that holds others.
func (c *cborCheck) enter(o cborOpen) error {
	if len(c.open) >= maxDepth {
		return errTooDeep
	}
	if !o.indefinite && o.left > uint64(len(c.rest)) {
		o.left = uint64(len(c.rest)) + 1 // more than there can be
	}
	c.open = append(c.open, o)
	return c.small()
}

// text takes a string. One that is known to be text the decoder looks at itself.
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

// small counts an item, and reports whether the body still is what it may be.
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
