package httpapi

import (
	"bytes"
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// derivation is a representation that is made of a stored object. With a medium it is the
// object in a binary medium. With run it is a compressed run of a list. The zero value is
// the cells of a table row.
type derivation struct {
	medium    *wire.Binary
	partial   bool // only the metadata, in the medium
	unmanaged bool // without managed fields, in the medium
	converted bool // JSON in the version of the type
	run       bool
	look      look // of a run
}

var (
	tableRow  = derivation{}
	converted = derivation{converted: true}
)

// form is the result of a derivation. It is immutable.
type form struct {
	raw    []byte
	stored bool          // raw is the stored value itself, so it takes no memory
	row    *resource.Row // nil: it is no row
	run    *compressed   // nil: it is no run
}

// size is how many bytes the form keeps.
func (f *form) size() (n int64) {
	if !f.stored {
		n += int64(len(f.raw))
	}
	if f.row != nil {
		n += int64(f.row.Len())
	}
	if f.run != nil {
		n += int64(f.run.Len()) + 8*int64(len(f.run.revisions))
	}
	return n
}

// derive makes a form of a stored value, in the version of the type.
func derive(ctx context.Context, t *resource.Type, value []byte, what derivation) (form, error) {
	if what == converted {
		made, err := wire.As(ctx, t, value)
		if err == nil && bytes.Equal(made, value) {
			return form{raw: value, stored: true}, nil
		}
		return form{raw: made}, err
	}
	if what != tableRow {
		raw, err := appendRaw(ctx, nil, t, value, what)
		return form{raw: raw}, err
	}
	o, err := wire.ReadSome(ctx, t, value, t.Display.Columns.Reads)
	if err != nil {
		return form{}, err
	}
	return rowOf(t, o), nil
}

// deriveConverted is derive for an object of a custom kind that has been converted: the
// value is JSON in the version of the type.
func deriveConverted(t *resource.Type, value []byte, what derivation) (form, error) {
	if what != tableRow {
		raw, err := appendTree(nil, value, what)
		return form{raw: raw}, err
	}
	o, err := wire.Unmarshal(value, t.New)
	if err != nil {
		return form{}, err
	}
	return rowOf(t, o), nil
}

func rowOf(t *resource.Type, o runtime.Object) form {
	row := new(resource.Row)
	t.Display.Columns.Cells(o, row)
	row.Compact()
	return form{row: row}
}

// appendRaw appends a stored value, or its metadata, in a binary medium.
func appendRaw(ctx context.Context, to []byte, t *resource.Type, value []byte, what derivation) ([]byte, error) {
	if !what.partial && t.Custom == nil {
		if what.unmanaged {
			value = wire.AppendUnmanaged(nil, value)
		}
		return what.medium.AppendValue(to, t, value)
	}
	value, err := wire.As(ctx, t, value)
	if err != nil {
		return to, err
	}
	return appendTree(to, value, what)
}

// appendTree appends JSON that has no Go type, or its metadata, in a binary medium.
func appendTree(to, value []byte, what derivation) ([]byte, error) {
	if what.unmanaged {
		value = wire.AppendUnmanaged(nil, value)
	}
	if !what.partial {
		_, raw, err := what.medium.Document(value)
		return append(to, raw...), err
	}
	meta, err := wire.MetadataOf(value)
	if err != nil {
		return to, err
	}
	return what.medium.AppendPartial(to, meta)
}
