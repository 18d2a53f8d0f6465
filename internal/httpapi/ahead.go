package httpapi

import (
	"iter"
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// A list of custom resources that a webhook converts looks ahead, so that one call converts
// many objects. Objects whose conversion is in the cache are not sent. Nor are objects that
// the response does not need: objects of a compressed run in the cache, and objects in the
// pass that only measures a list in a binary medium.

const (
	// aheadObjects and aheadBytes bound how far a list looks ahead. The response of a webhook
	// takes several times as much memory.
	aheadObjects = 500
	aheadBytes   = 512 << 10
	// aheadFirst is the number of objects in the first call, and aheadTime about how long a
	// call may take: a webhook that is slow with each object gets few of them at a time.
	aheadFirst = 32
	aheadTime  = time.Second
	// convertedBytes is how much of a list is converted before it begins: if a webhook fails before, the response is
	// a Status; if it fails later, the stream is reset.
	convertedBytes = 4 << 20
)

// ahead is the window of a list that looks ahead.
type ahead struct {
	// objects are the object to write next and those that follow it.
	objects []*store.Object
	// made are the results of the last call.
	made map[objectVersion][]byte
	// most is the number of objects in the next call; zero: aheadFirst.
	most int
}

// objectVersion is one version of an object of a list. Several objects can have one revision.
type objectVersion struct {
	key      string
	revision store.Revision
}

func versionOf(o *store.Object) objectVersion { return objectVersion{o.Key, o.Modified} }

// room returns the number of objects in the next call.
func (a *ahead) room() int {
	if a.most == 0 {
		return aheadFirst
	}
	return a.most
}

// took adapts the size of the next call to the duration of the last one: twice as large if
// there was time left, smaller if it took too long.
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

// lookAhead returns an iterator over the same objects, which fills the window.
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

// reach puts the objects of a run back at the front of the window, because their text is
// made only now. The function that it returns restores the window.
func (s *shape) reach(objects []*store.Object) (back func()) {
	before := s.ahead.objects
	if s.typ.ConvertsByWebhook() {
		s.ahead.objects = append(slices.Clip(objects), before[min(1, len(before)):]...)
	}
	return func() { s.ahead.objects = before }
}

// convertAhead returns an object as JSON in the version of the type. If it has to call the
// webhook, it sends the objects that follow, too.
func (s *shape) convertAhead(o *store.Object) ([]byte, error) {
	if f, ok := s.cache.kept(s.typ, o, converted); ok {
		return f.raw, nil
	}
	if value, c := o.Bytes(), s.typ.Conversion; c.AlreadyCurrent != nil && c.AlreadyCurrent(value) {
		return value, nil
	}
	if raw := s.ahead.made[versionOf(o)]; raw != nil {
		return raw, nil
	}
	objects := []*store.Object{o}
	if i := slices.Index(s.ahead.objects, o); i >= 0 {
		for _, next := range s.ahead.objects[i+1:] {
			if _, ok := s.cache.kept(s.typ, next, converted); !ok {
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
	s.ahead.made = make(map[objectVersion][]byte, len(made))
	for i, next := range objects {
		s.ahead.made[versionOf(next)] = made[i]
		s.cache.offer(s.typ, next, converted, form{raw: made[i]})
	}
	return s.ahead.made[versionOf(o)], nil
}

// made returns a form of an object from the cache, or makes it. In a list that a webhook
// converts it is made of the converted object.
func (s *shape) made(o *store.Object, what derivation) (form, error) {
	if s.current {
		return deriveConverted(s.typ, o.Bytes(), what)
	}
	if !s.listed || !s.typ.ConvertsByWebhook() {
		return s.cache.of(s.ctx, s.typ, o, what)
	}
	if f, ok := s.cache.kept(s.typ, o, what); ok {
		return f, nil
	}
	value, err := s.value(o)
	if err != nil {
		return form{}, err
	}
	f, err := deriveConverted(s.typ, value, what)
	if err == nil {
		s.cache.offer(s.typ, o, what, f)
	}
	return f, err
}
