package httpapi

import (
	"context"
	"time"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// list answers with a collection: rows C1, C13, C14. The stored bytes of its
// objects go out as they are; nothing is allocated for each of them.
func (q *request) list(t registry.Target, out wire.Output) error {
	o, err := listOptions(q.query())
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
	s := newSink(q)
	var err error
	meta := wire.ListMeta{Revision: uint64(l.Revision), Continue: l.Continue, Remaining: l.Remaining}
	if out.Media == wire.JSON && !q.pretty(out) {
		s.contentType = jsonType
		err = q.writeItems(s, l, meta)
	} else {
		err = q.writeListText(s, l, meta, out)
	}
	if err != nil {
		return err
	}
	return s.close()
}

// writeItems writes a list as JSON. One that is long enough, and that the client
// takes compressed, is put together from fragments.
func (q *request) writeItems(s *sink, l *registry.List, meta wire.ListMeta) error {
	s.buf = wire.AppendListHead(s.buf, q.typ, meta)
	head, headLen := len(s.buf), len(wire.Head(q.typ))
	var zip *zipped
	var early []*store.Object // those of a list that may still turn out to be long
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
		if q.wrote || len(s.buf) > head {
			s.buf = append(s.buf, ',')
		}
		if s.buf, err = q.appendItem(s.buf, object.Value, headLen); err != nil {
			return err
		}
		switch {
		case mayZip:
			early = append(early, object)
			if len(s.buf) > q.h.c.Limits.CompressAbove {
				zip, err = s.zip(q.typ, s.buf[:head], headLen, early)
			}
		case s.full():
			err = q.goOn(s)
		}
		if err != nil {
			return err
		}
	}
	if zip != nil {
		return zip.close(wire.ListTail)
	}
	s.buf = append(s.buf, wire.ListTail...)
	return nil
}

// goOn writes what was gathered of a list, unless its time is over.
func (q *request) goOn(s *sink) error {
	if err := q.inTime(); err != nil {
		return err
	}
	return s.flush()
}

// inTime is an error when the time of the request is over.
func (q *request) inTime() error {
	if !time.Now().Before(q.deadline) {
		q.h.metrics.terminated(q)
		return context.DeadlineExceeded
	}
	return nil
}

// writeListText writes a list as YAML or indented.
func (q *request) writeListText(s *sink, l *registry.List, meta wire.ListMeta, out wire.Output) error {
	t := q.typ
	text := wire.ListText{Media: out.Media, Type: t, Meta: meta}
	s.contentType = jsonType
	if out.Media == wire.YAML {
		s.contentType = yamlType
	}
	s.buf = text.Head(s.buf)
	head := len(wire.Head(t))
	var item []byte
	for object, err := range l.Items {
		if err != nil {
			return err
		}
		if item, err = q.appendItem(item[:0], object.Value, head); err != nil {
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
	var err error
	s.buf, err = text.Tail(s.buf)
	return err
}

// appendItem appends a stored value as an item, in the version that was asked for.
func (q *request) appendItem(to, value []byte, head int) ([]byte, error) {
	if q.typ.Stored != nil {
		var err error
		if value, err = wire.As(q.typ, value); err != nil {
			return to, err
		}
	}
	return wire.AppendItem(to, value, head), nil
}
