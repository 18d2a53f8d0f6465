package crd

import (
	"bytes"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"github.com/go-json-experiment/json/jsontext"
)

// shape is what dropping and defaulting see of a schema.
type shape struct {
	members  map[string]*shape // by name
	others   *shape            // of members that have no name; nil: there are none
	items    *shape            // nil: none but plain values
	anything bool              // what is not named stays as it is
	defaults int               // how many members have defaults
	has      bool              // a default
	never    bool              // it is not understood here
}

// plain takes values that nothing can be dropped from.
var plain = &shape{}

// shapeOf reads a schema; nil takes plain values alone.
func shapeOf(s *structuralschema.Structural) *shape {
	if s == nil {
		return plain
	}
	made := &shape{
		has: s.Default.Object != nil, anything: s.XPreserveUnknownFields, never: s.XEmbeddedResource,
		items: shapeOf(s.Items), members: make(map[string]*shape, len(s.Properties)),
	}
	for name, p := range s.Properties {
		member := shapeOf(&p)
		if made.members[name] = member; member.has {
			made.defaults++
		}
	}
	if s.AdditionalProperties != nil {
		made.others = shapeOf(s.AdditionalProperties.Structural)
	}
	return made
}

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// alreadyCurrent reports whether a stored object is for sure what this version shows: it was
// written in this version, and the schema neither drops a member nor adds a default. That
// holds for most objects that are older than the definition. It takes one pass over the
// JSON, without decoding. An object that the pass does not understand is not current.
func (v *version) alreadyCurrent(begin, value []byte) bool {
	if !bytes.HasPrefix(value, begin) {
		return false
	}
	c, err := v.schema()
	if err != nil || c.structural == nil {
		return false
	}
	return c.shape().current(value, true)
}

// shape is that of the schema, made when it is first asked for.
func (c *compiled) shape() *shape {
	c.shaped.Do(func() { c.root = shapeOf(c.structural) })
	return c.root
}

func (s *shape) current(value []byte, root bool) bool {
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(bytes.NewBuffer(value), jsontext.AllowDuplicateNames(true))
	return s.walk(d, root)
}

// walk looks at the next value.
func (s *shape) walk(d *jsontext.Decoder, root bool) bool {
	if s.never {
		return false
	}
	switch d.PeekKind() {
	case '{':
		return s != plain && s.walkObject(d, root)
	case '[':
		return s != plain && s.walkList(d)
	case 'n': // it may have to go, or become a default
		return false
	}
	return d.SkipValue() == nil
}

func (s *shape) walkObject(d *jsontext.Decoder, root bool) bool {
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	defaults := 0
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil || bytes.IndexByte(name, '\\') >= 0 {
			return false
		}
		name = name[1 : len(name)-1]
		if root && (string(name) == "kind" || string(name) == "apiVersion" || string(name) == "metadata") {
			if d.SkipValue() != nil {
				return false
			}
			continue
		}
		member := s.members[string(name)]
		switch {
		case member != nil && member.has:
			defaults++
		case member == nil:
			member = s.others
		}
		if member == nil && s.anything {
			if d.SkipValue() != nil {
				return false
			}
			continue
		}
		if member == nil || !member.walk(d, false) {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil && defaults == s.defaults
}

func (s *shape) walkList(d *jsontext.Decoder) bool {
	if s.anything && s.items == plain {
		return d.SkipValue() == nil
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	for k := d.PeekKind(); k != ']' && k != 0; k = d.PeekKind() {
		if !s.items.walk(d, false) {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil
}
