package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// entry is one of metadata.managedFields. It is never changed once it was made.
type entry struct {
	manager, apiVersion, subresource string
	applied                          bool
	// time is that of the wire, or empty; seconds are the same since 1970.
	time    string
	seconds int64
	fields  *fields
}

// fields is the set of one entry, as what is asked for needs it.
type fields struct {
	json []byte // FieldsV1, as the library writes it
	set  *fieldpath.Set
}

const (
	operationApply  = "Apply"
	operationUpdate = "Update"
)

func (e *entry) operation() string {
	if e.applied {
		return operationApply
	}
	return operationUpdate
}

// id tells managers apart: an applier is the same one at every version.
func (e *entry) id() string {
	id := metav1.ManagedFieldsEntry{
		Manager: e.manager, Operation: metav1.ManagedFieldsOperationType(e.operation()), Subresource: e.subresource,
	}
	if !e.applied {
		id.APIVersion = e.apiVersion
	}
	b, err := json.Marshal(&id)
	if err != nil {
		return e.manager // cannot be: these are strings
	}
	return string(b)
}

// same tells whether two entries are of the same manager.
func (e *entry) same(f *entry) bool {
	return e.manager == f.manager && e.applied == f.applied && e.subresource == f.subresource &&
		(e.applied || e.apiVersion == f.apiVersion)
}

// parseManaged reads metadata.managedFields. Of two entries of one manager the last
// one counts. No bytes are no entries.
func parseManaged(raw []byte) ([]*entry, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var decoded []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return nil, err
	}
	entries := make([]*entry, 0, len(decoded))
	for i := range decoded {
		e, err := newEntry(&decoded[i])
		if err != nil {
			return nil, fmt.Errorf("metadata.managedFields[%d]: %w", i, err)
		}
		if at := slices.IndexFunc(entries, e.same); at >= 0 {
			entries[at] = e
			continue
		}
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
	raw := []byte("{}")
	if d.FieldsV1 != nil {
		raw = d.FieldsV1.GetRawBytes()
	}
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(raw)); err != nil {
		return nil, fmt.Errorf("fieldsV1: %w", err)
	}
	var err error
	e.fields, err = fieldsOf(set)
	return e, err
}

func (e *entry) setTime(t time.Time) {
	e.time, e.seconds = t.UTC().Format(time.RFC3339), t.Unix()
}

func fieldsOf(set *fieldpath.Set) (*fields, error) {
	b, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("fieldsV1: %w", err)
	}
	return &fields{json: b, set: set}, nil
}

// order is that of the wire: applied before updated, then by time, manager, version
// and subresource.
func (e *entry) order(f *entry) int {
	if c := strings.Compare(e.operation(), f.operation()); c != 0 {
		return c
	}
	switch {
	case e.seconds < f.seconds:
		return -1
	case e.seconds > f.seconds:
		return 1
	}
	if c := strings.Compare(e.manager, f.manager); c != 0 {
		return c
	}
	if c := strings.Compare(e.apiVersion, f.apiVersion); c != 0 {
		return c
	}
	return strings.Compare(e.subresource, f.subresource)
}

// encodeManaged writes the entries in their order, as encoding/json would write
// them inside an object; none are no bytes.
func encodeManaged(entries []*entry) []byte {
	if len(entries) == 0 {
		return nil
	}
	slices.SortFunc(entries, (*entry).order)
	n := 2
	for _, e := range entries {
		n += len(e.fields.json) + len(e.manager) + 160
	}
	b := append(make([]byte, 0, n), '[')
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.append(b)
	}
	return append(b, ']')
}

func (e *entry) append(b []byte) []byte {
	b = append(b, '{')
	if e.manager != "" {
		b = append(appendString(append(b, `"manager":`...), e.manager), ',')
	}
	b = append(append(b, `"operation":"`...), e.operation()...)
	b = appendString(append(b, `","apiVersion":`...), e.apiVersion)
	if e.time != "" {
		b = append(append(append(b, `,"time":"`...), e.time...), '"')
	}
	b = append(b, `,"fieldsType":"FieldsV1","fieldsV1":`...)
	b = appendCompact(b, e.fields.json)
	if e.subresource != "" {
		b = appendString(append(b, `,"subresource":`...), e.subresource)
	}
	return append(b, '}')
}

// appendString writes a string as encoding/json does.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...) // cannot be: it is a string
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendCompact writes FieldsV1 as encoding/json writes raw JSON: < > & are escaped.
func appendCompact(b, raw []byte) []byte {
	if !bytes.ContainsAny(raw, "<>&\u2028\u2029") {
		return append(b, raw...)
	}
	var out bytes.Buffer
	json.HTMLEscape(&out, raw)
	return append(b, out.Bytes()...)
}
