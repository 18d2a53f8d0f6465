package httpapi

import (
	"bytes"
	"context"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// derivation is a representation that is made of a stored object. With a medium it is the
// object in a binary medium. With run it is a compressed run of a list. The zero value is
// the cells of a table row.
type derivation struct {
	medium    *wire.Binary
	partial   bool // only the metadata, in the medium
	converted bool // JSON in the version of the type
	run       bool
	look      look // of a run
}

var (
	tableRow  = derivation{}
	converted = derivation{converted: true}
)

// form is what a derivation results in. It is immutable.
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
	o, err := wire.ReadSome(ctx, t, value, t.Columns.Reads)
	if err != nil {
		return form{}, err
	}
	row := new(resource.Row)
	t.Columns.Cells(o, row)
	row.Compact()
	return form{row: row}, nil
}

// appendRaw appends a stored value, or its metadata, in a binary medium.
func appendRaw(ctx context.Context, to []byte, t *resource.Type, value []byte, what derivation) ([]byte, error) {
	if what.partial || t.Decode != nil {
		value, err := wire.As(ctx, t, value)
		if err != nil {
			return to, err
		}
		if !what.partial { // it has no other encoding than JSON
			_, raw, err := what.medium.Document(value)
			return append(to, raw...), err
		}
		meta, err := wire.MetadataOf(value)
		if err != nil {
			return to, err
		}
		return what.medium.AppendPartial(to, meta)
	}
	return what.medium.AppendValue(to, t, value)
}
