package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// object is an object as JSON has it.
type object map[string]any

// at returns the value at a path, or nil.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// text returns the string at a path, or "".
func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) name() string    { return o.text("metadata", "name") }
func (o object) uid() string     { return o.text("metadata", "uid") }
func (o object) version() string { return o.text("metadata", "resourceVersion") }

// mark returns the label that the checks change, which identifies a version of an object.
func (o object) mark() string { return o.text("metadata", "labels", markLabel) }

// metadata returns the metadata, and adds it if it is missing.
func (o object) metadata() map[string]any { return child(o, "metadata") }

func child(m map[string]any, key string) map[string]any {
	c, ok := m[key].(map[string]any)
	if !ok {
		c = map[string]any{}
		m[key] = c
	}
	return c
}

// label sets a label.
func (o object) label(key, value string) { child(o.metadata(), "labels")[key] = value }

// finalizers returns the object's finalizers.
func (o object) finalizers() []string {
	var all []string
	list, _ := o.at("metadata", "finalizers").([]any)
	for _, f := range list {
		if s, ok := f.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// copied returns a deep copy.
func (o object) copied() object {
	var c object
	if err := json.Unmarshal(o.encode(), &c); err != nil {
		panic(err) // it came from JSON
	}
	return c
}

func (o object) encode() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // all values have a JSON form
	}
	return b
}

// list is a decoded response to a list.
type list struct {
	kind, apiVersion string
	version, next    string
	remaining        *int64
	items            []object
	hasItems         bool
	shard            *string // the selector in shardInfo; nil: there is none
}

func parseList(b []byte) (list, error) {
	var raw struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			ResourceVersion    string `json:"resourceVersion"`
			Continue           string `json:"continue"`
			RemainingItemCount *int64 `json:"remainingItemCount"`
			ShardInfo          *struct {
				Selector string `json:"selector"`
			} `json:"shardInfo"`
		} `json:"metadata"`
		Items *[]object `json:"items"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return list{}, fmt.Errorf("the response is no list: %w", err)
	}
	l := list{
		kind: raw.Kind, apiVersion: raw.APIVersion, version: raw.Metadata.ResourceVersion,
		next: raw.Metadata.Continue, remaining: raw.Metadata.RemainingItemCount, hasItems: raw.Items != nil,
	}
	if raw.Items != nil {
		l.items = *raw.Items
	}
	if raw.Metadata.ShardInfo != nil {
		l.shard = &raw.Metadata.ShardInfo.Selector
	}
	return l, nil
}

// state is a collection as the checks compare it: each name and the version of its
// object.
type state map[string]string

// state returns the objects whose names begin with a prefix.
func (l list) state(prefix string) state {
	s := state{}
	for _, o := range l.items {
		if strings.HasPrefix(o.name(), prefix) {
			s[o.name()] = o.version()
		}
	}
	return s
}

// String writes the state in order.
func (s state) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, name+"@"+s[name])
	}
	return "{" + strings.Join(parts, " ") + "}"
}

// difference describes how s differs from want. It returns "" if they are equal.
func (s state) difference(want state) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch have, ok := s[name]; {
		case !ok:
			parts = append(parts, name+"@"+want[name]+" is missing")
		case have != want[name]:
			parts = append(parts, name+" is at "+have+", want "+want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if _, ok := want[name]; !ok {
			parts = append(parts, name+"@"+s[name]+" is too much")
		}
	}
	if len(parts) > 5 {
		parts = append(parts[:5], fmt.Sprintf("and %d more", len(parts)-5))
	}
	return strings.Join(parts, ", ")
}
