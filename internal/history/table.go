package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// Columns are those of a table of changes.
var Columns = []metav1.TableColumnDefinition{
	{Name: "Revision", Type: "string", Format: "name", Description: "The resource version that the change made."},
	{Name: "Time", Type: "string", Format: "date-time", Description: "When the change was made."},
	{Name: "Verb", Type: "string", Description: "The verb of the request, and the subresource."},
	{Name: "Object", Type: "string", Description: "The resource and the name of the object."},
	{Name: "By", Type: "string", Description: "Who made the change."},
	{Name: "Changed", Type: "string", Description: "The first fields that changed."},
}

// Row returns the row of a change. Include is the part of the change that it carries.
func Row(c *changes.Change, include metav1.IncludeObjectPolicy) (metav1.TableRow, error) {
	when := "-"
	if !c.Time.IsZero() {
		when = c.Time.Format(time.RFC3339)
	}
	verb := c.Verb
	if c.Subresource != "" {
		verb += "/" + c.Subresource
	}
	if verb == "" {
		verb = "-"
	}
	row := metav1.TableRow{Cells: []any{c.Revision, when, verb, c.Resource + "/" + c.Name, c.By(), Summary(c)}}
	var object any
	switch include {
	case metav1.IncludeNone:
		return row, nil
	case metav1.IncludeObject:
		object = c
	default:
		object = map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": c.Metadata}
	}
	raw, err := json.Marshal(object)
	row.Object = runtime.RawExtension{Raw: raw}
	return row, err
}

const (
	summaryFields = 3  // that a summary shows
	summaryValue  = 32 // the bytes of a value in it
)

// Summary describes the fields of a change in a line.
func Summary(c *changes.Change) string {
	if c.Creates() || c.Deletes() {
		return c.Word()
	}
	var parts []string
	if word := c.Word(); word != "" {
		parts = append(parts, word)
	}
	shown := c.Shown()
	for i := range shown {
		if i == summaryFields {
			parts = append(parts, fmt.Sprintf("and %d more", len(shown)-i))
			break
		}
		parts = append(parts, summary(c.Resource, &shown[i]))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// summary describes one field.
func summary(resource string, f *changes.Field) string {
	short := short
	if changes.Confidential(resource, f.Path) {
		short = masked
	}
	switch {
	case f.From == nil:
		return f.Path + " added " + short(f.To)
	case f.To == nil:
		return f.Path + " removed " + short(f.From)
	}
	return f.Path + " " + short(f.From) + " -> " + short(f.To)
}

// masked stands for a value that a table does not show.
func masked(json.RawMessage) string { return "***" }

// short returns a value, or its beginning.
func short(value json.RawMessage) string {
	text := string(value)
	var s string
	if json.Unmarshal(value, &s) == nil && s != "" && !strings.ContainsAny(s, " ,\n\"") {
		text = s
	}
	if len(text) > summaryValue {
		text = strings.ToValidUTF8(text[:summaryValue], "") + "..."
	}
	return text
}
