package wire

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// ListMeta is the metadata of a list.
type ListMeta struct {
	// Revision is zero for objects that have no versions.
	Revision uint64
	// Continue is empty on the last page, Remaining nil where it is not known.
	Continue  string
	Remaining *int64
}

// Frame is what stands around the items of a list or the rows of a table. The zero
// value is not useful: ListOf, PartialListOf and TableOf make one.
type Frame struct {
	Kind, APIVersion string
	Meta             ListMeta
	// columns are those of a table, as JSON; nil: it is none.
	columns []byte
	// null stands for the items when there are none.
	null bool
	// full: it says what it would else leave out, that it does not go on.
	full bool
}

// ListOf is a list of whole objects: row C1.
func ListOf(t *resource.Type, m ListMeta) Frame {
	return Frame{Kind: t.List(), APIVersion: t.GroupVersion().String(), Meta: m, full: t.Custom != nil}
}

// PartialListOf is a list of partial objects: row C6. Without any its items are null.
func PartialListOf(out Output, m ListMeta) Frame {
	return Frame{Kind: "PartialObjectMetadataList", APIVersion: out.metaVersion(), Meta: m, null: true}
}

// TableOf is a table: row C2. The columns are as JSON.
func TableOf(out Output, c *resource.Columns, m ListMeta) Frame {
	return Frame{Kind: "Table", APIVersion: out.metaVersion(), Meta: m, columns: c.Definitions(), null: c.NoneIsNull}
}

// OmitColumns leaves the columns out of a table: row W12.
func (f *Frame) OmitColumns() { f.columns = []byte("null") }

// metaVersion is the version of the form that is asked for.
func (o Output) metaVersion() string {
	if o.Beta {
		return "meta.k8s.io/v1beta1"
	}
	return "meta.k8s.io/v1"
}

// items is the member that the items are.
func (f *Frame) items() string {
	if f.columns != nil {
		return "rows"
	}
	return "items"
}

// AppendHead appends what stands before the items, in JSON.
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

// AppendNone appends a whole list without items.
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
		// A token is base64url: nothing in it needs an escape.
		to = append(to, `,"continue":"`...)
		to = append(to, m.Continue...)
		to = append(to, '"')
	}
	if m.Remaining != nil {
		to = append(to, `,"remainingItemCount":`...)
		to = strconv.AppendInt(to, *m.Remaining, 10)
	}
	return append(to, '}')
}

func (m *ListMeta) listMeta() metav1.ListMeta {
	if m.Revision == 0 {
		return metav1.ListMeta{}
	}
	return metav1.ListMeta{ResourceVersion: strconv.FormatUint(m.Revision, 10), Continue: m.Continue, RemainingItemCount: m.Remaining}
}

// AppendItem appends an object as an item of a list, which carries no kind and no
// apiVersion. The value begins with a head of headLen bytes: that of Head.
func AppendItem(to, value []byte, headLen int) []byte {
	to = append(to, '{')
	return append(to, value[headLen:]...)
}

// ListTail ends a list.
const ListTail = "]}\n"
