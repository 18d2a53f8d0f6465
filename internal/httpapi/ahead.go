package httpapi

import (
	"iter"
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Lists of objects that somebody else converts look ahead: he is asked for many at
// once. What is kept is not asked for again, and of what is not shown (a compressed
// list whose fragments are kept, the first way through a list in a binary medium)
// nothing is asked.

const (
	// aheadObjects and aheadBytes bound how far a list looks ahead. An answer is some
	// times as large in memory, until it is written.
	aheadObjects = 500
	aheadBytes   = 512 << 10
	// aheadFirst is how many objects are asked for first: who is slow with each is not
	// asked for so many that no time is enough. One question may take about aheadTime.
	aheadFirst = 32
	aheadTime  = time.Second
)

// ahead is how far a list has looked.
type ahead struct {
	// objects are the one that is shown and those that follow it.
	objects []*store.Object
	// made is what the last question made of those that were not kept, by revision.
	made map[store.Revision][]byte
	// most is how many to ask for next; zero: aheadFirst.
	most int
}

// room is how many objects to ask for next.
func (a *ahead) room() int {
	if a.most == 0 {
		return aheadFirst
	}
	return a.most
}

// took notes how long a question of some objects took: the next one may be twice as
// large, or is as much smaller as it was too long.
func (a *ahead) took(objects int, d time.Duration) {
	n := a.room()
	switch {
	case d > aheadTime/2:
		n = int(float64(objects) * float64(aheadTime) / float64(d))
	case objects >= n:
		n *= 2
	}
	a.most = max(1, min(n, aheadObjects))
}

// lookAhead yields the same, with those that follow at hand.
func (s *shape) lookAhead(all iter.Seq2[*store.Object, error]) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		var window []*store.Object
		size := 0
		show := func() bool {
			defer func() { s.ahead.objects, window, size = nil, window[:0], 0 }()
			for i, o := range window {
				s.ahead.objects = window[i:]
				if !yield(o, nil) {
					return false
				}
			}
			return true
		}
		for o, err := range all {
			if err != nil {
				if show() {
					yield(nil, err)
				}
				return
			}
			window, size = append(window, o), size+o.Len()
			if (len(window) >= s.ahead.room() || size >= aheadBytes) && !show() {
				return
			}
		}
		show()
	}
}

// reach has neighbours asked for together that are shown only now, until the function
// that it returns is called.
func (s *shape) reach(objects []*store.Object) (back func()) {
	before := s.ahead.objects
	if s.typ.ConvertsByWebhook() {
		s.ahead.objects = append(slices.Clip(objects), before[min(1, len(before)):]...)
	}
	return func() { s.ahead.objects = before }
}

// convertAhead is an object as JSON of the type's version, which is asked for with those
// that follow it.
func (s *shape) convertAhead(o *store.Object) ([]byte, error) {
	if f, ok := s.derived.kept(s.typ, o, converted); ok {
		return f.raw, nil
	}
	if value, c := o.Bytes(), s.typ.Conversion; c.AlreadyCurrent != nil && c.AlreadyCurrent(value) {
		return value, nil
	}
	if raw := s.ahead.made[o.Modified]; raw != nil {
		return raw, nil
	}
	objects := []*store.Object{o}
	if i := slices.Index(s.ahead.objects, o); i >= 0 {
		for _, next := range s.ahead.objects[i+1:] {
			if _, ok := s.derived.kept(s.typ, next, converted); !ok {
				objects = append(objects, next)
			}
		}
	}
	values := make([][]byte, len(objects))
	for i, next := range objects {
		values[i] = next.Bytes()
	}
	begin := time.Now()
	made, err := wire.AsAll(s.ctx, s.typ, values)
	if err != nil {
		return nil, err
	}
	s.ahead.took(len(objects), time.Since(begin))
	s.ahead.made = make(map[store.Revision][]byte, len(made))
	for i, next := range objects {
		s.ahead.made[next.Modified] = made[i]
		s.derived.offer(s.typ, next, converted, form{raw: made[i]})
	}
	return s.ahead.made[o.Modified], nil
}

// made is what is made of an object, and kept: in a list of objects that somebody else
// converts out of what he made of it.
func (s *shape) made(o *store.Object, what derivation) (form, error) {
	if s.current {
		return deriveConverted(s.typ, o.Bytes(), what)
	}
	if !s.listed || !s.typ.ConvertsByWebhook() {
		return s.derived.of(s.ctx, s.typ, o, what)
	}
	if f, ok := s.derived.kept(s.typ, o, what); ok {
		return f, nil
	}
	value, err := s.value(o)
	if err != nil {
		return form{}, err
	}
	f, err := deriveConverted(s.typ, value, what)
	if err == nil {
		s.derived.offer(s.typ, o, what, f)
	}
	return f, err
}
