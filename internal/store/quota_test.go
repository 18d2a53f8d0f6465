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
		o, err := s.Commit(t.Context(), storetest.Padded(fmt.Sprintf("ns/%d", len(made)), 0, size))
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
	if _, err := s.Commit(t.Context(), storetest.Padded("ns/0", made[0].Modified, 2*size)); !errors.As(err, &full) {
		t.Errorf("an update that grows: got %v", err)
	}
	same := storetest.MustCommit(t, s, storetest.Padded("ns/0", made[0].Modified, size))
	shrunk := storetest.MustCommit(t, s, storetest.Padded("ns/0", same.Modified, size-100))
	marked := storetest.MustCommit(t, s, storetest.Padded("ns/0", shrunk.Modified, size)) // a little more
	deleting := storetest.Padded("ns/0", marked.Modified, 3*size)
	deleting.Deleting = true
	last := storetest.MustCommit(t, s, deleting)
	if _, err := s.Commit(t.Context(), storetest.Padded("ns/new", 0, 1)); !errors.As(err, &full) {
		t.Errorf("a small create: got %v", err)
	}
	if _, err := s.Commit(t.Context(), storetest.Remove("ns/0", last.Modified)); err != nil {
		t.Fatal(err)
	}
	for i, o := range made[1:] {
		if i%2 == 0 {
			if _, err := s.Commit(t.Context(), storetest.Remove(o.Key, o.Modified)); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.MustCommit(t, s, storetest.Padded("ns/new", 0, size))
	if want := "usage is below 75% of the quota"; !strings.Contains(said.String(), want) {
		t.Errorf("it does not say %q: %s", want, &said)
	}
	storetest.Close(t, s)
}

// TestQuotaSlack: small updates go on at the quota, but not without end.
func TestQuotaSlack(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	const limit = 1 << 20
	o := storetest.MustCommit(t, s, storetest.Padded("ns/a", 0, 100<<10))
	for i := range 9 {
		storetest.MustCommit(t, s, storetest.Padded(fmt.Sprintf("ns/%d", i), 0, 100<<10))
	}
	s.SetQuota(s.Any().Bytes() - 10) // more is stored than may be
	var full *store.QuotaError
	most := s.Any().Bytes() * 17 / 16
	for size := 100 << 10; ; size += 1 << 10 {
		next, err := s.Commit(t.Context(), storetest.Padded("ns/a", o.Modified, size))
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
	storetest.MustCommit(t, s, storetest.Padded("ns/b", 0, limit))
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
		storetest.MustCommit(t, s, storetest.Padded("ns/a", 0, 10))
		s.SetQuota(1 << 20)
		refused := storetest.Begin(s, storetest.Padded("ns/b", 0, 2<<20))
		other := storetest.Begin(s, storetest.Padded("ns/c", 0, 10))
		select {
		case got := <-other:
			if got.Err != nil {
				t.Error(got.Err)
			}
		default:
			t.Error("a write waits for the logger")
		}
		close(stuck)
		var full *store.QuotaError
		if got := <-refused; !errors.As(got.Err, &full) {
			t.Error(got.Err)
		}
		storetest.Close(t, s)
	})
}
