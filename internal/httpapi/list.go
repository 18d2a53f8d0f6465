package httpapi

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// list responds with a collection. It writes the stored bytes of the objects without a
// memory allocation per object.
func (q *request) list(t registry.Target, out wire.Output) error {
	o, err := q.listOptions()
	if err != nil {
		return err
	}
	l, err := q.h.c.Registry.List(q.context(), t, o)
	if err != nil {
		return err
	}
	return q.writeList(l, out)
}

// writeList writes a list and closes it.
func (q *request) writeList(l *registry.List, out wire.Output) error {
	defer l.Close()
	// Two buffers: one of items, one of compressed bytes.
	if err := q.holdResponse(int(l.BufferedBytes) + 2*q.h.c.Limits.WriteBatchBytes); err != nil {
		return err
	}
	if out.Form == wire.Partial {
		return notShown("you requested PartialObjectMetadata, but the requested object is a list " + goName(q.typ, "List"))
	}
	h, err := q.newShape(q.typ, out)
	if err != nil {
		return err
	}
	if out.Form == wire.Table && q.typ.Display.Columns.Place != nil {
		if err := h.sort(l); err != nil {
			return err
		}
	}
	if out.Form == wire.Table && q.typ.Display.Columns.First != nil {
		if err := h.findFirst(l); err != nil {
			return err
		}
	}
	h.listed = true
	if q.typ.ConvertsByWebhook() {
		l.Items = h.lookAhead(l.Items)
	}
	if err := q.auditList(l, out); err != nil {
		return err
	}
	defer q.h.metrics.listedBy(q, l)
	s := newSink(q)
	if q.typ.ConvertsByWebhook() {
		s.holds = convertedBytes
	}
	f := h.frame(wire.ListMeta{Revision: uint64(l.Revision), Continue: l.Continue, Remaining: l.Remaining, Shard: l.Shard})
	switch {
	case h.binary != nil:
		s.contentType = h.binary.ContentType
		err = q.writeBinary(s, l, h, f)
	case out.Media == wire.JSON && !q.pretty(out):
		s.contentType = jsonType
		err = q.writeItems(s, l, h, f)
	default:
		err = q.writeListText(s, l, h, f)
	}
	if err != nil {
		return err
	}
	return s.close()
}

// writeItems writes a list as JSON. A long list for a client that accepts gzip consists of
// compressed runs.
func (q *request) writeItems(s *sink, l *registry.List, h *shape, f wire.Frame) error {
	s.buf = f.AppendHead(s.buf)
	head := len(s.buf)
	var zip *zipped
	var early []*store.Object // those written before the list is known to be long
	mayZip := l.Whole && q.acceptsGzip()
	for object, err := range l.Items {
		if err == nil && zip != nil {
			if err = zip.add(object); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if s.begun || len(s.buf) > head {
			s.buf = append(s.buf, ',')
		}
		if s.buf, err = h.item(s.buf, object); err != nil {
			return err
		}
		switch {
		case mayZip:
			early = append(early, object)
			if len(s.buf) > q.h.c.Limits.CompressAbove {
				zip, err = s.zip(h, s.buf[:head], early)
			}
		case s.full():
			err = q.goOn(s)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case zip != nil:
		return zip.close(wire.ListTail)
	case !s.begun && len(s.buf) == head:
		s.buf = f.AppendNone(s.buf[:0])
	default:
		s.buf = append(s.buf, wire.ListTail...)
	}
	return nil
}

// writeBinary writes a list in a binary medium, which begins with the length of the list. A
// list that does not fit into one write is read twice, first for its length.
func (q *request) writeBinary(s *sink, l *registry.List, h *shape, f wire.Frame) error {
	var size wire.ListSize
	gathered := 0
	mayZip := l.Whole && q.acceptsGzip()
	for object, err := range l.Items {
		if err != nil {
			return err
		}
		size.Items++
		if size.Bytes > q.h.c.Limits.WriteBatchBytes && !h.binary.Sized {
			if err := q.inTime(); err != nil {
				return err
			}
			continue
		}
		before := len(s.buf)
		if s.buf, err = h.item(s.buf, object); err != nil {
			return err
		}
		size.Bytes += len(s.buf) - before
		switch {
		case mayZip && size.Bytes > q.h.c.Limits.CompressAbove:
			return q.zipBinary(s, l, h, f)
		case size.Bytes <= q.h.c.Limits.WriteBatchBytes:
			gathered++
		default:
			s.buf = s.buf[:before]
			if err := q.inTime(); err != nil {
				return err
			}
		}
	}
	s.buf = slices.Insert(s.buf, 0, h.binary.ListHead(nil, &f, size)...)
	if gathered < size.Items {
		if err := q.writeRest(s, l, h, gathered); err != nil {
			return err
		}
	}
	s.buf = append(s.buf, h.binary.Tail...)
	return nil
}

// writeRest writes the items after those that were gathered.
func (q *request) writeRest(s *sink, l *registry.List, h *shape, gathered int) error {
	for object, err := range l.Items {
		if err != nil {
			return err
		}
		if gathered > 0 {
			gathered--
			continue
		}
		if s.buf, err = h.item(s.buf, object); err != nil {
			return err
		}
		if s.full() {
			if err := q.goOn(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// zipBinary writes a list in a binary medium as compressed runs, after it has measured them.
func (q *request) zipBinary(s *sink, l *registry.List, h *shape, f wire.Frame) error {
	s.buf = s.buf[:0]
	size, err := q.measure(s, l, h)
	if err != nil {
		return err
	}
	z, err := s.zip(h, h.binary.ListHead(nil, &f, size), nil)
	if err != nil {
		return err
	}
	if err := z.addAll(l); err != nil {
		return err
	}
	return z.close(h.binary.Tail)
}

// measure returns the size of a list, as far as the medium needs it.
func (q *request) measure(s *sink, l *registry.List, h *shape) (size wire.ListSize, err error) {
	if h.binary.Sized {
		z := newZipped(s, h)
		z.measures = true
		err = z.addAll(l)
		return wire.ListSize{Bytes: z.size}, err
	}
	for _, err := range l.Items {
		if err != nil {
			return size, err
		}
		size.Items++
	}
	return size, nil
}

// goOn writes the items that were gathered, unless the deadline is over.
func (q *request) goOn(s *sink) error {
	if err := q.inTime(); err != nil {
		return err
	}
	return s.flush()
}

// wanted returns an error if the client is gone or the deadline over.
func (q *request) wanted() error {
	if err := q.r.Context().Err(); err != nil {
		return err
	}
	if q.deadline.IsZero() {
		return nil
	}
	return q.inTime()
}

// inTime returns an error if the deadline of the request is over.
func (q *request) inTime() error {
	if !time.Now().Before(q.deadline) {
		q.h.metrics.terminated(q)
		return context.DeadlineExceeded
	}
	return nil
}

// writeListText writes a list as YAML or indented.
func (q *request) writeListText(s *sink, l *registry.List, h *shape, f wire.Frame) error {
	text := wire.ListText{Media: h.out.Media, Frame: f}
	s.contentType = jsonType
	if h.out.Media == wire.YAML {
		s.contentType = yamlType
	}
	var err error
	if s.buf, err = text.Head(s.buf); err != nil {
		return err
	}
	var item []byte
	for object, err := range l.Items {
		if err != nil {
			return err
		}
		if item, err = h.item(item[:0], object); err != nil {
			return err
		}
		if s.buf, err = text.Item(s.buf, item); err != nil {
			return err
		}
		if s.full() {
			if err := q.goOn(s); err != nil {
				return err
			}
		}
	}
	s.buf, err = text.Tail(s.buf)
	return err
}
