package crd

import (
	"bytes"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"github.com/go-json-experiment/json/jsontext"
)

// pruner is the part of a schema that pruning and defaulting use.
type pruner struct {
	members  map[string]*pruner // by name
	others   *pruner            // additional properties; nil: there are none
	items    *pruner
	anything bool // unknown members are preserved
	defaults int  // how many members have defaults
	has      bool // a default
	never    bool // no value is sure to be current
}

// scalar is for strings, numbers and booleans.
var scalar = &pruner{}

// prunerOf reads a schema; nil is for scalars.
func prunerOf(s *structuralschema.Structural) *pruner {
	if s == nil {
		return scalar
	}
	made := &pruner{
		has: s.Default.Object != nil, anything: s.XPreserveUnknownFields, never: s.XEmbeddedResource,
		items: prunerOf(s.Items), members: make(map[string]*pruner, len(s.Properties)),
	}
	for name, p := range s.Properties {
		member := prunerOf(&p)
		if made.members[name] = member; member.has {
			made.defaults++
		}
	}
	if s.AdditionalProperties != nil {
		made.others = prunerOf(s.AdditionalProperties.Structural)
	}
	return made
}

// decoders are scratch memory: each use begins with Reset.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// alreadyCurrent reports whether a stored object is sure to need no conversion: it was
// written in this version, and the schema neither drops a member nor adds a default. That is
// so for most objects that are older than the definition. It takes one pass over the JSON,
// without decoding. If the pass cannot decide, the object is not current.
func (v *version) alreadyCurrent(begin, value []byte) bool {
	if !bytes.HasPrefix(value, begin) {
		return false
	}
	c, err := v.schema()
	if err != nil || c.structural == nil {
		return false
	}
	return c.pruner().current(value, true)
}

// pruner returns the part of the schema for pruning. The first call makes it.
func (c *compiled) pruner() *pruner {
	c.prunes.Do(func() { c.root = prunerOf(c.structural) })
	return c.root
}

func (p *pruner) current(value []byte, root bool) bool {
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(bytes.NewBuffer(value), jsontext.AllowDuplicateNames(true))
	return p.walk(d, root)
}

// walk reports whether the next value is current.
func (p *pruner) walk(d *jsontext.Decoder, root bool) bool {
	if p.never {
		return false
	}
	switch d.PeekKind() {
	case '{':
		return p != scalar && p.walkObject(d, root)
	case '[':
		return p != scalar && p.walkList(d)
	case 'n': // it may be dropped, or replaced by a default
		return false
	}
	return d.SkipValue() == nil
}

func (p *pruner) walkObject(d *jsontext.Decoder, root bool) bool {
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
		member := p.members[string(name)]
		switch {
		case member != nil && member.has:
			defaults++
		case member == nil:
			member = p.others
		}
		if member == nil && p.anything {
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
	return err == nil && defaults == p.defaults
}

func (p *pruner) walkList(d *jsontext.Decoder) bool {
	if p.anything && p.items == scalar {
		return d.SkipValue() == nil
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	for k := d.PeekKind(); k != ']' && k != 0; k = d.PeekKind() {
		if !p.items.walk(d, false) {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil
}
