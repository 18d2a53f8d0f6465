package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

func padded(key string, condition store.Revision, size int) store.Write {
	w := write(key, condition)
	w.Value = append(w.Value, bytes.Repeat([]byte(" "), size)...)
	return w
}

// TestQuota fills a store: at the quota nothing grows, all else goes on, and a
// deletion makes room again.
func TestQuota(t *testing.T) {
	var said bytes.Buffer
	s := storetest.Open(t, store.Options{Log: memlog.New(), Note: func(warning bool, message string, pairs ...any) {
		fmt.Fprintln(&said, warning, message, pairs)
	}})
	const limit, size = 1 << 20, 64 << 10
	s.SetQuota(limit)
	var full *store.QuotaError
	var made []*store.Object
	for {
		o, err := s.Commit(t.Context(), padded(fmt.Sprintf("ns/%d", len(made)), 0, size))
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, o)
	}
	if n := len(made); n < limit/size*3/4 || n > limit/size {
		t.Errorf("%d objects of %d bytes fit into %d", n, size, limit)
	}
	if used := s.Any().Bytes(); full.Limit != limit || full.Used != used || full.Grows < size || used > limit {
		t.Errorf("the error is %+v, %d bytes are used", full, used)
	}
	if got := s.Stats(); got.QuotaBytes != limit || got.QuotaRefused != 1 || got.ObjectBytes != s.Any().Bytes() {
		t.Errorf("stats: %+v", got)
	}
	if n := strings.Count(said.String(), "true storage: usage is above 80% of the quota"); n != 1 {
		t.Errorf("%d warnings: %s", n, &said)
	}
	if _, err := s.Commit(t.Context(), padded("ns/0", made[0].Modified, 2*size)); !errors.As(err, &full) {
		t.Errorf("an update that grows: got %v", err)
	}
	same := mustWrite(t, s, padded("ns/0", made[0].Modified, size))
	shrunk := mustWrite(t, s, padded("ns/0", same.Modified, size-100))
	marked := mustWrite(t, s, padded("ns/0", shrunk.Modified, size)) // a little more
	deleting := padded("ns/0", marked.Modified, 3*size)
	deleting.Deleting = true
	last := mustWrite(t, s, deleting)
	if _, err := s.Commit(t.Context(), padded("ns/new", 0, 1)); !errors.As(err, &full) {
		t.Errorf("a small create: got %v", err)
	}
	if _, err := s.Commit(t.Context(), remove("ns/0", last.Modified)); err != nil {
		t.Fatal(err)
	}
	for i, o := range made[1:] {
		if i%2 == 0 {
			if _, err := s.Commit(t.Context(), remove(o.Key, o.Modified)); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustWrite(t, s, padded("ns/new", 0, size))
	if want := "usage is below 75% of the quota"; !strings.Contains(said.String(), want) {
		t.Errorf("it does not say %q: %s", want, &said)
	}
	storetest.Close(t, s)
}

// TestQuotaSlack: small updates go on at the quota, but not without end.
func TestQuotaSlack(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	const limit = 1 << 20
	o := mustWrite(t, s, padded("ns/a", 0, 100<<10))
	for i := range 9 {
		mustWrite(t, s, padded(fmt.Sprintf("ns/%d", i), 0, 100<<10))
	}
	s.SetQuota(s.Any().Bytes() - 10) // more is stored than may be
	var full *store.QuotaError
	most := s.Any().Bytes() * 17 / 16
	for size := 100 << 10; ; size += 1 << 10 {
		next, err := s.Commit(t.Context(), padded("ns/a", o.Modified, size))
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if o = next; s.Any().Bytes() > most || size > limit {
			t.Fatalf("%d bytes, and no end", s.Any().Bytes())
		}
	}
	s.SetQuota(0)
	mustWrite(t, s, padded("ns/b", 0, limit))
	storetest.Close(t, s)
}

// TestQuotaNoteHoldsNothing has the logger block: writes and reads go on.
func TestQuotaNoteHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		s := storetest.Open(t, store.Options{Log: memlog.New(), Note: func(_ bool, message string, _ ...any) {
			if strings.Contains(message, "refused") {
				<-stuck
			}
		}})
		mustWrite(t, s, padded("ns/a", 0, 10))
		s.SetQuota(1 << 20)
		refused := begin(s, padded("ns/b", 0, 2<<20))
		other := begin(s, padded("ns/c", 0, 10))
		select {
		case got := <-other:
			if got.err != nil {
				t.Error(got.err)
			}
		default:
			t.Error("a write waits for the logger")
		}
		close(stuck)
		var full *store.QuotaError
		if got := <-refused; !errors.As(got.err, &full) {
			t.Error(got.err)
		}
		storetest.Close(t, s)
	})
}
