package apply

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

// entry is an entry of metadata.managedFields. It is immutable.
type entry struct {
	manager, apiVersion, subresource string
	applied                          bool
	// time as on the wire, or empty; seconds is the same as Unix time.
	time    string
	seconds int64
	fields  *fields
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

// id identifies a manager. An applier is the same manager at each version.
func (e *entry) id() string {
	id := metav1.ManagedFieldsEntry{
		Manager: e.manager, Operation: metav1.ManagedFieldsOperationType(e.operation()), Subresource: e.subresource,
	}
	if !e.applied {
		id.APIVersion = e.apiVersion
	}
	b, err := json.Marshal(&id)
	if err != nil {
		return e.manager // impossible: these are strings
	}
	return string(b)
}

// who is a comparable id.
type who struct {
	manager, apiVersion, subresource string
	applied                          bool
}

func (e *entry) who() who {
	w := who{e.manager, e.apiVersion, e.subresource, e.applied}
	if e.applied {
		w.apiVersion = ""
	}
	return w
}

// same reports whether two entries are of the same manager.
func (e *entry) same(f *entry) bool { return e.who() == f.who() }

func (e *entry) setTime(t time.Time) {
	e.time, e.seconds = t.UTC().Format(time.RFC3339), t.Unix()
}

// order is the order of entries in managedFields: applied before updated, then by time, manager,
// version and subresource.
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

// encodeManaged encodes the entries in their order, as encoding/json does inside an object;
// nil for no entries.
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
		b = append(jsontext.AppendString(append(b, `"manager":`...), e.manager), ',')
	}
	b = append(append(b, `"operation":"`...), e.operation()...)
	b = jsontext.AppendString(append(b, `","apiVersion":`...), e.apiVersion)
	if e.time != "" {
		b = append(append(append(b, `,"time":"`...), e.time...), '"')
	}
	b = append(b, `,"fieldsType":"FieldsV1","fieldsV1":`...)
	b = append(b, e.fields.json...)
	if e.subresource != "" {
		b = jsontext.AppendString(append(b, `,"subresource":`...), e.subresource)
	}
	return append(b, '}')
}
