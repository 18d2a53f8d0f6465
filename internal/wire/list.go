package wire

import (
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// ListMeta is the metadata of a list.
type ListMeta struct {
	Revision uint64
	// Continue is empty on the last page, Remaining nil where it is not known.
	Continue  string
	Remaining *int64
}

// AppendListHead appends what stands before the items of a list.
func AppendListHead(to []byte, t *resource.Type, m ListMeta) []byte {
	to = append(to, `{"kind":"`...)
	to = append(to, t.Kind...)
	to = append(to, `List","apiVersion":"`...)
	to = appendGroupVersion(to, t)
	to = append(to, `","metadata":{"resourceVersion":"`...)
	to = strconv.AppendUint(to, m.Revision, 10)
	to = append(to, '"')
	if m.Continue != "" {
		// A token is base64url: nothing in it needs an escape.
		to = append(to, `,"continue":"`...)
		to = append(to, m.Continue...)
		to = append(to, '"')
	}
	if m.Remaining != nil {
		to = append(to, `,"remainingItemCount":`...)
		to = strconv.AppendInt(to, *m.Remaining, 10)
	}
	return append(to, `},"items":[`...)
}

// AppendItem appends an object as an item of a list, which carries no kind and no
// apiVersion. The value begins with a head of headLen bytes: that of Head.
func AppendItem(to, value []byte, headLen int) []byte {
	to = append(to, '{')
	return append(to, value[headLen:]...)
}

// ListTail ends a list.
const ListTail = "]}\n"

func appendGroupVersion(to []byte, t *resource.Type) []byte {
	if t.Group != "" {
		to = append(to, t.Group...)
		to = append(to, '/')
	}
	return append(to, t.Version...)
}
