package wire

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// ListMeta is the metadata of a list.
type ListMeta struct {
	// Revision is zero for objects without versions.
	Revision uint64
	// Continue is empty on the last chunk. Remaining is nil where it is unknown.
	Continue  string
	Remaining *int64
	// Shard is the selector of the shard that the list has; empty: it has all.
	Shard string
}

// Frame is all of a list or a table but its items or rows. The zero value is not useful:
// use ListOf, PartialListOf or TableOf.
type Frame struct {
	Kind, APIVersion string
	Meta             ListMeta
	// columns of a table, as JSON; nil: it is not a table.
	columns []byte
	// null: an empty list has null as its items.
	null bool
	// full: members without a value are written, such as an empty continue.
	full bool
}

// ListOf returns the frame of a list of whole objects.
func ListOf(t *resource.Type, m ListMeta) Frame {
	return Frame{Kind: t.List(), APIVersion: t.GroupVersion().String(), Meta: m, full: t.Custom != nil}
}

// PartialListOf returns the frame of a list of partial objects. An empty one has null as
// its items.
func PartialListOf(out Output, m ListMeta) Frame {
	return Frame{Kind: "PartialObjectMetadataList", APIVersion: out.metaVersion(), Meta: m, null: true}
}

// TableOf returns the frame of a table.
func TableOf(out Output, c *resource.Columns, m ListMeta) Frame {
	return Frame{Kind: "Table", APIVersion: out.metaVersion(), Meta: m, columns: c.Definitions(), null: c.NoneIsNull}
}

// OmitColumns omits the columns, as in all events of a watch but the first.
func (f *Frame) OmitColumns() { f.columns = []byte("null") }

// metaVersion returns the version of the requested form.
func (o Output) metaVersion() string {
	if o.Beta {
		return "meta.k8s.io/v1beta1"
	}
	return "meta.k8s.io/v1"
}

// items returns the name of the member that holds the items.
func (f *Frame) items() string {
	if f.columns != nil {
		return "rows"
	}
	return "items"
}

// AppendHead appends the part before the items, as JSON.
func (f *Frame) AppendHead(to []byte) []byte {
	to = f.appendBefore(to)
	return append(to, '[')
}

func (f *Frame) appendBefore(to []byte) []byte {
	to = append(to, `{"kind":"`...)
	to = append(to, f.Kind...)
	to = append(to, `","apiVersion":"`...)
	to = append(to, f.APIVersion...)
	to = append(to, `","metadata":`...)
	to = f.Meta.append(to, f.full)
	if f.columns != nil {
		to = append(to, `,"columnDefinitions":`...)
		to = append(to, f.columns...)
	}
	to = append(to, `,"`...)
	to = append(to, f.items()...)
	return append(to, `":`...)
}

// AppendNone appends a complete list without items.
func (f *Frame) AppendNone(to []byte) []byte {
	to = f.appendBefore(to)
	if f.null {
		return append(to, "null}\n"...)
	}
	return append(to, "["+ListTail...)
}

func (m *ListMeta) append(to []byte, full bool) []byte {
	if m.Revision == 0 {
		return append(to, "{}"...)
	}
	to = append(to, `{"resourceVersion":"`...)
	to = strconv.AppendUint(to, m.Revision, 10)
	to = append(to, '"')
	if m.Continue != "" || full {
		// A continue token is base64url, which needs no escapes.
		to = append(to, `,"continue":"`...)
		to = append(to, m.Continue...)
		to = append(to, '"')
	}
	if m.Remaining != nil {
		to = append(to, `,"remainingItemCount":`...)
		to = strconv.AppendInt(to, *m.Remaining, 10)
	}
	if m.Shard != "" {
		// A selector has no characters that need escapes.
		to = append(to, `,"shardInfo":{"selector":"`...)
		to = append(to, m.Shard...)
		to = append(to, `"}`...)
	}
	return append(to, '}')
}

func (m *ListMeta) listMeta() metav1.ListMeta {
	if m.Revision == 0 {
		return metav1.ListMeta{}
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(m.Revision, 10), Continue: m.Continue, RemainingItemCount: m.Remaining}
	if m.Shard != "" {
		meta.ShardInfo = &metav1.ShardInfo{Selector: m.Shard}
	}
	return meta
}

// ListTail ends a list.
const ListTail = "]}\n"
