package apply

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// parseManaged parses metadata.managedFields. Of two entries of one manager the last one
// counts. No bytes mean no entries.
func parseManaged(raw []byte) ([]*entry, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if entries, ok := parseWritten(raw); ok {
		return entries, nil
	}
	var decoded []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return nil, err
	}
	entries := make([]*entry, 0, len(decoded))
	at := make(map[who]int, len(decoded))
	for i := range decoded {
		e, err := newEntry(&decoded[i])
		if err != nil {
			return nil, fmt.Errorf("metadata.managedFields[%d]: %w", i, err)
		}
		if j, ok := at[e.who()]; ok {
			entries[j] = e
			continue
		}
		at[e.who()] = len(entries)
		entries = append(entries, e)
	}
	return entries, nil
}

func newEntry(d *metav1.ManagedFieldsEntry) (*entry, error) {
	e := &entry{manager: d.Manager, apiVersion: d.APIVersion, subresource: d.Subresource}
	switch d.Operation {
	case metav1.ManagedFieldsOperationApply:
		e.applied = true
	case metav1.ManagedFieldsOperationUpdate:
	default:
		return nil, fmt.Errorf("operation is %q: it must be Apply or Update", d.Operation)
	}
	if d.APIVersion == "" {
		return nil, fmt.Errorf("apiVersion is empty")
	}
	if d.FieldsType != "FieldsV1" {
		return nil, fmt.Errorf("fieldsType is %q: it must be FieldsV1", d.FieldsType)
	}
	if d.Time != nil {
		e.setTime(d.Time.Time)
	}
	raw := emptyFields
	if d.FieldsV1 != nil {
		raw = d.FieldsV1.GetRawBytes()
	}
	var err error
	e.fields, err = parsed.get(raw)
	return e, err
}

// parseWritten parses an array that encodeManaged wrote; ok is false for any other.
func parseWritten(raw []byte) (entries []*entry, ok bool) {
	p := writtenParser{rest: raw}
	if !p.take("[") {
		return nil, false
	}
	all := make([]entry, 0, 4)
	for first := true; !p.take("]"); first = false {
		if !first && !p.take(",") {
			return nil, false
		}
		e, ok := p.entry()
		if !ok {
			return nil, false
		}
		all = append(all, e)
	}
	if len(p.rest) > 0 {
		return nil, false
	}
	entries = make([]*entry, len(all))
	for i := range all {
		entries[i] = &all[i]
	}
	return entries, !sameTwice(entries)
}

// sameTwice reports whether a manager has two entries.
func sameTwice(entries []*entry) bool {
	if len(entries) > manyMembers {
		seen := make(map[who]bool, len(entries))
		for _, e := range entries {
			seen[e.who()] = true
		}
		return len(seen) < len(entries)
	}
	for i, e := range entries {
		if slices.ContainsFunc(entries[:i], e.same) {
			return true
		}
	}
	return false
}

type writtenParser struct{ rest []byte }

func (p *writtenParser) take(word string) bool {
	if len(p.rest) >= len(word) && string(p.rest[:len(word)]) == word {
		p.rest = p.rest[len(word):]
		return true
	}
	return false
}

// text reads a string without escapes.
func (p *writtenParser) text() (string, bool) {
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return "", false
	}
	end, escapes, ok := stringEnd(p.rest, 0)
	if !ok || escapes {
		return "", false
	}
	s := string(p.rest[1 : end-1])
	p.rest = p.rest[end:]
	return s, true
}

// entry reads one entry, in the order in which its members are written.
func (p *writtenParser) entry() (e entry, ok bool) {
	if !p.take("{") {
		return e, false
	}
	if p.take(`"manager":`) {
		if e.manager, ok = p.text(); !ok || !p.take(",") {
			return e, false
		}
	}
	switch {
	case p.take(`"operation":"Apply","apiVersion":`):
		e.applied = true
	case p.take(`"operation":"Update","apiVersion":`):
	default:
		return e, false
	}
	if e.apiVersion, ok = p.text(); !ok || e.apiVersion == "" {
		return e, false
	}
	if p.take(`,"time":`) {
		if e.time, ok = p.text(); !ok || !e.readTime() {
			return e, false
		}
	}
	if !p.take(`,"fieldsType":"FieldsV1","fieldsV1":`) {
		return e, false
	}
	end, ok := objectEnd(p.rest)
	if !ok {
		return e, false
	}
	var err error
	if e.fields, err = parsed.get(p.rest[:end]); err != nil {
		return e, false
	}
	p.rest = p.rest[end:]
	if p.take(`,"subresource":`) {
		if e.subresource, ok = p.text(); !ok || e.subresource == "" {
			return e, false
		}
	}
	return e, p.take("}")
}

// readTime sets the seconds from the time of an entry.
func (e *entry) readTime() bool {
	t, err := time.Parse(time.RFC3339, e.time)
	if err != nil || len(e.time) != len("2006-01-02T15:04:05Z") {
		return false
	}
	e.seconds = t.Unix()
	return true
}

// objectEnd finds the end of a JSON object, without checking its content.
func objectEnd(data []byte) (int, bool) {
	depth := 0
	for p := 0; p < len(data); p++ {
		switch data[p] {
		case '"':
			end, _, ok := stringEnd(data, p)
			if !ok {
				return 0, false
			}
			p = end - 1
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return p + 1, true
			}
		default:
			if depth == 0 {
				return 0, false
			}
		}
	}
	return 0, false
}
