package wire

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// ReadSome returns a stored value as a new object with only some of its members. Most
// others are not decoded.
func ReadSome(ctx context.Context, t *resource.Type, value []byte, members *resource.Members) (runtime.Object, error) {
	if t.Conversion != nil || members == nil {
		return Read(ctx, t, value)
	}
	kept := rooms.Get().(*room)
	defer rooms.Put(kept)
	c := transcoder{in: value, room: *kept}
	c.out = c.out[:0]
	if !c.some(members) || c.at != len(c.in) {
		return Read(ctx, t, value)
	}
	if cap(c.out) <= mostRoom {
		kept.out = c.out
	}
	return Unmarshal(c.out, t.New)
}

// some reads a value, and appends those of its members that are selected.
func (c *transcoder) some(members *resource.Members) bool {
	if c.at >= len(c.in) {
		return false
	}
	switch {
	case members == nil:
	case c.in[c.at] == '{':
		return c.someMembers(members)
	case c.in[c.at] == '[':
		return c.someItems(members)
	}
	begin := c.at
	ok := c.skip()
	c.out = append(c.out, c.in[begin:c.at]...)
	return ok
}

func (c *transcoder) someMembers(members *resource.Members) bool {
	if !c.first() {
		return false
	}
	c.out = append(c.out, '{')
	for before := len(c.out); c.more; {
		inner, wanted := members.Of(c.key())
		if !wanted {
			if !c.skip() || !c.next() {
				return false
			}
			continue
		}
		if len(c.out) > before {
			c.out = append(c.out, ',')
		}
		c.out = append(append(append(c.out, '"'), c.key()...), '"', ':')
		if !c.some(inner) || !c.next() {
			return false
		}
	}
	c.out = append(c.out, '}')
	return true
}

func (c *transcoder) someItems(members *resource.Members) bool {
	c.at++
	c.out = append(c.out, '[')
	if c.is(']') {
		c.out = append(c.out, ']')
		return true
	}
	for {
		if !c.some(members) {
			return false
		}
		if c.is(']') {
			c.out = append(c.out, ']')
			return true
		}
		if !c.is(',') {
			return false
		}
		c.out = append(c.out, ',')
	}
}
