package store

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// # Objects that cannot be read
//
// A Shared can hold a value that this server cannot decrypt or decode: it is damaged, or the key is
// missing. The rest of the state must not suffer, and the object must not vanish: an owner that seems to
// be absent has its dependents deleted. So a stand-in has its place. It has the key, the revisions and
// the reason, and no content. Readers have to refuse it: see Object.Unreadable and HasUnreadable.

// mostWhy limits the reason, in bytes.
const mostWhy = 1 << 10

const whyMember = `,"unreadable":`

// NewUnreadable returns the stand-in for a version of an object that cannot be read, and why.
func NewUnreadable(key string, created, modified Revision, why string) *Object {
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		namespace, name = "", key
	}
	held := fmt.Appendf(nil, `{"metadata":{"name":%s,"namespace":%s,"resourceVersion":"`, quoted(name), quoted(namespace))
	at := len(held)
	held = strconv.AppendUint(held, uint64(modified), 10)
	held = fmt.Appendf(held, `"}%s%s}`, whyMember, quoted(why[:min(len(why), mostWhy)]))
	o := &Object{Key: key, Held: held, Created: created, Modified: modified, RevisionAt: int32(at)}
	o.mark.Store(isUnreadable)
	return o
}

// quoted returns a text as JSON, with a question mark for each character that is not printable ASCII.
func quoted(s string) string {
	return strconv.Quote(strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s))
}

func (o *Object) isUnreadable() bool { return o != nil && o.mark.Load()&isUnreadable != 0 }

// Unreadable returns why the object is the stand-in of one that cannot be read; empty: it is none. The
// object may be nil.
func (o *Object) Unreadable() string {
	if !o.isUnreadable() {
		return ""
	}
	b := o.Bytes()
	i := bytes.LastIndex(b, []byte(whyMember))
	if why, err := strconv.Unquote(string(b[i+len(whyMember) : len(b)-1])); err == nil && why != "" {
		return why
	}
	return "the stored value cannot be read"
}

type standInsKey struct{}

// WithStandIns returns a context for reads of the history that include changes which cannot be read: a Log that encrypts
// yields stand-ins for their objects, where it otherwise ends with an error. The error would name an object to a reader
// that asked for others.
func WithStandIns(ctx context.Context) context.Context {
	return context.WithValue(ctx, standInsKey{}, true)
}

// WantsStandIns reports whether WithStandIns made the context.
func WantsStandIns(ctx context.Context) bool { return ctx.Value(standInsKey{}) != nil }
