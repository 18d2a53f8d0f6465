package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
)

// onDisk is a log whose history counts as stored on disk.
type onDisk struct{ *memlog.Log }

func (d onDisk) Replay(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	b, err := d.Log.Replay(ctx, load)
	b.InMemory = false
	return b, err
}

// TestListFromLogIsCharged checks that the memory of a list of old objects is charged to the user
// while the client reads, before a chunk is collected.
func TestListFromLogIsCharged(t *testing.T) {
	s := newServer(t, store.Options{Log: onDisk{memlog.New()}, MaxMemory: 1})
	large := strings.Repeat("x", 500<<10)
	var at store.Revision
	for i := range 10 {
		at = s.create("configmaps", "default", configMap(fmt.Sprint("a", i), "", large)).Modified
	}
	for i := range 10 {
		s.create("configmaps", "default", configMap(fmt.Sprint("b", i), "", large))
	}
	g := fairness.New(fairness.Config{Bytes: 4 << 20})
	g.Configure([]fairness.Level{{Name: "l", Exempt: true}}, 1)
	o := metainternal.ListOptions{ResourceVersion: version(at), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	for limit, charged := range map[int64]bool{0: true, 1: true, 4: true, 10: false} {
		seat, err := g.Acquire(t.Context(), fairness.Request{Level: "l", User: "u"})
		if err != nil {
			t.Fatal(err)
		}
		o.Limit = limit
		l, err := s.List(fairness.WithSeat(t.Context(), seat), s.target("configmaps", "", ""), &o)
		switch {
		case !charged:
			if !errors.Is(err, fairness.ErrFull) {
				t.Errorf("limit %d: %v, want no memory", limit, err)
			}
		case err != nil:
			t.Errorf("limit %d: %v", limit, err)
		default:
			want := max(1, limit) * int64(len(large))
			if got := l.BufferedBytes + g.Bytes(); !l.FromLog || got < min(want, store.BatchBytes) || got < want && limit > 0 {
				t.Errorf("limit %d: %d bytes are charged, want %d", limit, got, want)
			}
			l.Close()
		}
		seat.Release()
		if n := g.Bytes(); n != 0 {
			t.Errorf("limit %d: %d bytes are charged after the end", limit, n)
		}
	}
}
