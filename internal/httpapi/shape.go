package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// shape encodes the objects of one response in the negotiated representation: JSON, a binary
// medium, a Table or PartialObjectMetadata. It belongs to one request, also when the
// goroutine of another one delivers its events.
type shape struct {
	ctx    context.Context //nolint:containedctx // of the request, which a webhook may be called for
	cache  *cache
	typ    *resource.Type
	out    wire.Output
	binary *wire.Binary // nil: the response is text
	head   string       // of a stored object, before its metadata

	wanted func() error // an error once the client is gone or the deadline over; nil: always wanted
	listed bool         // the objects are items of a list
	room   []byte       // the buffer of raw
	ahead  ahead        // of a list that a webhook converts
	// current: the object is in the version of the type and needs no conversion.
	current bool

	// Of a table: which part of the object a row carries, the time that ages refer to, and
	// whether the next event has the columns.
	include metav1.IncludeObjectPolicy
	now     time.Time
	columns bool
	// first is the object of a list that the columns prefer, with rowOfFirst; nil: there is none.
	first      *store.Object
	rowOfFirst *resource.Row
}

// newShape returns the shape of the negotiated output.
func (q *request) newShape(t *resource.Type, out wire.Output) (*shape, error) {
	s := &shape{ctx: q.context(), cache: q.h.cache, typ: t, out: out, binary: out.Binary(), head: wire.Head(t), columns: true, wanted: q.wanted}
	if out.Form != wire.Table {
		return s, nil
	}
	s.now = q.now()
	switch s.include = metav1.IncludeObjectPolicy(q.query().Get("includeObject")); s.include {
	case "":
		s.include = metav1.IncludeMetadata
	case metav1.IncludeMetadata, metav1.IncludeObject, metav1.IncludeNone:
	default:
		err := field.Invalid(field.NewPath("includeObject"), string(s.include), "must be 'Metadata', 'Object', 'None', or empty")
		return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " + err.Error())
	}
	if t.Display.Columns == nil {
		return nil, notShown("the resource " + t.GroupResource().String() + " does not support being converted to a Table")
	}
	return s, nil
}

// notShown is the response (406) if the object or list has no such form.
func notShown(message string) error {
	return refusal(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, message, nil)
}

// itemHead returns how many leading bytes of a stored object an item of a list omits: kind
// and apiVersion, which the list has.
func (s *shape) itemHead() int {
	if s.typ.Custom != nil {
		return len("{")
	}
	return len(s.head)
}

// goName returns the name of a type in error messages, as kube-apiserver has it.
func goName(t *resource.Type, list string) string {
	t = t.StoredVersion()
	group, _, _ := strings.Cut(t.Group, ".")
	if group == "" {
		group = "core"
	}
	return fmt.Sprintf("(*%s.%s%s)", group, t.Kind, list)
}

// look identifies the options that change the bytes of an item. The bytes also depend on the
// object and on its moment.
type look uint8

func (s *shape) look() look {
	l := look(s.out.Form)
	if s.out.Beta {
		l |= 1 << 2
	}
	switch s.out.Media {
	case wire.Protobuf:
		l |= 1 << 3
	case wire.CBOR:
		l |= 1 << 6
	}
	switch s.include {
	case metav1.IncludeObject:
		l |= 1 << 4
	case metav1.IncludeNone:
		l |= 1 << 5
	}
	if s.out.Unmanaged {
		l |= 1 << 7
	}
	return l
}

// separated reports whether items are separated by commas.
func (s *shape) separated() bool { return s.binary == nil }

// moment identifies the ages that a table row of the object shows now. lasting reports
// whether they stay the same for a while.
func (s *shape) moment(o *store.Object) (moment uint64, lasting bool, err error) {
	if s.out.Form != wire.Table {
		return 0, true, nil
	}
	f, err := s.made(o, tableRow)
	if err != nil {
		return 0, false, err
	}
	moment, lasting = f.row.Moment(s.now)
	return moment, lasting, nil
}

// frame returns the text around the items.
func (s *shape) frame(m wire.ListMeta) wire.Frame {
	switch s.out.Form {
	case wire.PartialList:
		return wire.PartialListOf(s.out, m)
	case wire.Table:
		return wire.TableOf(s.out, s.typ.Display.Columns, m)
	}
	return wire.ListOf(s.typ, m)
}

// mostSorted bounds the rows of a list that are sorted, and so the memory for that. Longer
// lists keep the order of the store.
const mostSorted = 16 << 10

// sort sorts the rows of a list by the order of the kind. Such kinds have few objects.
func (s *shape) sort(l *registry.List) error {
	type placed struct {
		place  int32
		stored *store.Object
	}
	var all []placed
	create := s.typ.StoredVersion().New
	for o, err := range l.Items {
		if err != nil {
			return err
		}
		if len(all) == mostSorted {
			return nil
		}
		object, err := wire.Unmarshal(o.Bytes(), create)
		if err != nil {
			return err
		}
		all = append(all, placed{s.typ.Display.Columns.Place(object), o})
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	l.Whole = false
	l.Items = func(yield func(*store.Object, error) bool) {
		for _, p := range all {
			if !yield(p.stored, nil) {
				return
			}
		}
	}
	return nil
}

// findFirst finds the object of a list that its columns prefer. Lists of more than mostSorted objects have none.
func (s *shape) findFirst(l *registry.List) error {
	var all []*store.Object
	var first runtime.Object
	var stored *store.Object
	create := s.typ.StoredVersion().New
	for o, err := range l.Items {
		if err != nil {
			return err
		}
		if len(all) == mostSorted {
			return nil
		}
		all = append(all, o)
		object, err := wire.Unmarshal(o.Bytes(), create)
		if err != nil {
			return err
		}
		if s.typ.Display.Columns.First(object, first) {
			first, stored = object, o
		}
	}
	if first != nil {
		row := new(resource.Row)
		s.typ.Display.Columns.CellsOfFirst(first, row)
		s.first, s.rowOfFirst = stored, row
	}
	l.Whole = false // a row depends on the list
	l.Items = func(yield func(*store.Object, error) bool) {
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
	}
	return nil
}

// item appends an object as an item of a list.
func (s *shape) item(to []byte, o *store.Object) ([]byte, error) {
	switch {
	case s.binary != nil:
		raw, err := s.raw(o)
		if err != nil {
			return to, err
		}
		return s.binary.Item(to, wire.ItemTypeOf(s.typ, s.out), raw), nil
	case s.out.Form == wire.Table:
		return s.row(to, o)
	}
	if s.out.Form == wire.PartialList {
		return s.partial(to, o)
	}
	value, err := s.value(o)
	if err != nil {
		return to, err
	}
	return s.whole(append(to, '{'), value[s.itemHead():]), nil
}

// whole appends an object as JSON. Its first bytes may be missing.
func (s *shape) whole(to, value []byte) []byte {
	if s.out.Unmanaged {
		return wire.AppendUnmanaged(to, value)
	}
	return append(to, value...)
}

// value returns an object as JSON in the version of the type. It is valid until the next
// call.
func (s *shape) value(o *store.Object) ([]byte, error) {
	if s.typ.Conversion == nil || s.current {
		return o.Bytes(), nil
	}
	if s.typ.ConvertsPerRequest() && s.wanted != nil { // a webhook may be called
		if err := s.wanted(); err != nil {
			return nil, err
		}
	}
	if !s.listed {
		f, err := s.cache.of(s.ctx, s.typ, o, converted)
		return f.raw, err
	}
	if s.typ.ConvertsByWebhook() {
		return s.convertAhead(o)
	}
	raw, ok, err := s.cache.ofListed(s.ctx, s.typ, o, converted)
	if ok || err != nil {
		return raw, err
	}
	return wire.As(s.ctx, s.typ, o.Bytes())
}

// partial appends the metadata of an object as an object.
func (s *shape) partial(to []byte, o *store.Object) ([]byte, error) {
	meta, err := s.metadata(o)
	if err != nil {
		return to, err
	}
	return wire.AppendPartial(to, meta, s.out), nil
}

var metadataMember = []byte(`"metadata":`)

// metadata returns the metadata of an object as JSON. The object remembers where it ends.
func (s *shape) metadata(o *store.Object) ([]byte, error) {
	if s.typ.Conversion != nil && !s.current {
		value, err := s.value(o)
		if err != nil {
			return nil, err
		}
		return wire.MetadataOf(value)
	}
	begin, value := len(s.head)+len(metadataMember), o.Bytes()
	// The mark may belong to a type with another head, if a definition was replaced.
	if end := o.Mark(); end > begin && end <= len(value) && string(value[:len(s.head)]) == s.head {
		return value[begin:end], nil
	}
	meta, err := wire.MetadataOf(value)
	if err == nil && bytes.HasPrefix(value[min(len(s.head), len(value)):], metadataMember) {
		o.SetMark(begin + len(meta))
	}
	return meta, err
}

// raw returns an object in the binary medium, without its kind. It is valid until the next
// call.
func (s *shape) raw(o *store.Object) ([]byte, error) {
	what := derivation{medium: s.binary, partial: s.out.Form != wire.Whole, unmanaged: s.out.Unmanaged}
	if !s.listed || s.typ.ConvertsByWebhook() {
		f, err := s.made(o, what)
		return f.raw, err
	}
	raw, ok, err := s.cache.ofListed(s.ctx, s.typ, o, what)
	if ok || err != nil {
		return raw, err
	}
	s.room, err = appendRaw(s.ctx, s.room[:0], s.typ, o.Bytes(), what)
	return s.room, err
}

// row appends an object as a row of a table.
func (s *shape) row(to []byte, o *store.Object) ([]byte, error) {
	f, err := s.made(o, tableRow)
	if err != nil {
		return to, err
	}
	row := f.row
	if s.first != nil && o == s.first {
		row = s.rowOfFirst
	}
	to = row.Append(append(to, '{'), s.now)
	to = append(to, `,"object":`...)
	switch s.include {
	case metav1.IncludeNone:
		to = append(to, "null"...)
	case metav1.IncludeObject:
		var value []byte
		value, err = s.value(o)
		to = s.whole(to, value)
	default:
		to, err = s.partial(to, o)
	}
	return append(to, '}'), err
}

// object appends a single object, or the object of an event.
func (s *shape) object(to []byte, o *store.Object) ([]byte, error) {
	switch {
	case s.binary != nil:
		raw, err := s.raw(o)
		if err != nil {
			return to, err
		}
		return s.binary.Object(to, wire.TypeOf(s.typ, s.out), raw), nil
	case s.out.Form == wire.Table:
		f := s.frame(wire.ListMeta{Revision: uint64(o.Modified)})
		if !s.columns {
			f.OmitColumns()
		}
		to, err := s.row(f.AppendHead(to), o)
		return append(to, "]}"...), err
	case s.out.Form == wire.Partial:
		return s.partial(to, o)
	}
	value, err := s.value(o)
	return s.whole(to, value), err
}

// event appends a watch event.
func (s *shape) event(to []byte, e *registry.Event) ([]byte, error) {
	if e.Status != nil {
		return s.statusEvent(to, string(e.Type), encodeStatus(e.Status))
	}
	o := e.Object
	if e.Type == registry.Bookmark {
		s.current = s.typ.ConvertsPerRequest() // no webhook is called for a bookmark
		defer func() { s.current = false }()
		o = &store.Object{Held: wire.AppendBookmark(nil, s.typ.StrategyVersion(), uint64(e.Revision), e.InitialEventsEnd), Modified: e.Revision}
		if e.InitialEventsEnd && s.include == metav1.IncludeNone {
			// The annotation that ends the initial events is part of the object.
			s.include = metav1.IncludeMetadata
			defer func() { s.include = metav1.IncludeNone }()
		}
	}
	if s.binary != nil {
		raw, err := s.raw(o)
		if err != nil {
			return to, err
		}
		return s.binary.Event(to, string(e.Type), wire.TypeOf(s.typ, s.out), raw), nil
	}
	to, err := s.object(wire.BeginEvent(to, string(e.Type)), o)
	s.columns = false // only the first event has them
	return append(to, wire.EventTail...), err
}

func (s *shape) statusEvent(to []byte, eventType string, status []byte) ([]byte, error) {
	if s.binary == nil {
		return wire.AppendEvent(to, eventType, status[:len(status)-1]), nil
	}
	head, raw, err := s.binary.Document(status)
	if err != nil {
		return to, err
	}
	return s.binary.Event(to, eventType, head, raw), nil
}
