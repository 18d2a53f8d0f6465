package etcdlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// direct puts a key without the log.
func direct(t testing.TB, m *member, key, value string) store.Revision {
	t.Helper()
	r, err := m.etcd.Server.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return store.Revision(r.Header.Revision)
}

func compact(t testing.TB, m *member, at store.Revision) {
	t.Helper()
	if _, err := m.etcd.Server.Compact(t.Context(), &pb.CompactionRequest{Revision: int64(at), Physical: true}); err != nil {
		t.Fatal(err)
	}
}

// waitForFences waits until the tries of writes with a number of fences have ended without a response: each fence
// is raised before the repetition.
func waitForFences(t *testing.T, m *member, n int64) {
	t.Helper()
	fences := &pb.RangeRequest{Key: []byte(prefix + "/tidemark.dev/guards/.fences/"), RangeEnd: []byte(prefix + "/tidemark.dev/guards/.fences0"), CountOnly: true}
	await.True(t, "fences", func() bool {
		found, err := m.etcd.Server.Range(t.Context(), fences)
		must(t, err)
		return found.Count >= n
	})
}

// TestUnknown loses the responses of transactions that are made: each is made once, and reported at its
// revision. Of a deletion, it stays unknown who made it.
func TestUnknown(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	mute := &c.members[0].clients.mute
	old := propose(t, l, put("pods", "old", "one", 0))
	gone := propose(t, l, put("pods", "gone", "one", 0))
	var all sync.WaitGroup
	made := make([]store.Decision, 4)
	errs := make([]error, 4)
	mute.Store(true)
	for i, w := range []store.Write{put("pods", "new", "one", 0), put("pods", "old", "two", old), del("pods", "gone", gone), put("pods", "old", "conflict", old+1000)} {
		all.Go(func() { made[i], errs[i] = l.Propose(t.Context(), &store.Txn{Writes: []store.Write{w}}) })
	}
	waitForFences(t, c.members[0], 3) // of three objects
	mute.Store(false)
	all.Wait()
	for i, d := range made {
		if deletion := i == 2; deletion && !errors.Is(errs[i], store.ErrUnknown) || !deletion && (errs[i] != nil || d.Made != (i < 2)) {
			t.Errorf("write %d: got %+v, %v", i, d, errs[i])
		}
	}
	var got []string
	for _, e := range entries(follow(t, l, b.Head, propose(t, l, put("pods", "last", "", 0)))) {
		got = append(got, fmt.Sprint(e.Revision, " ", e.Key))
	}
	var deleted store.Revision
	for _, line := range got[2:] {
		if strings.HasSuffix(line, " gone") {
			_, _ = fmt.Sscan(line, &deleted)
		}
	}
	want := []string{fmt.Sprint(old, " old"), fmt.Sprint(gone, " gone"), fmt.Sprint(made[0].Revision, " new"), fmt.Sprint(made[1].Revision, " old"), fmt.Sprint(deleted, " gone")}
	slices.Sort(want)
	if !slices.Equal(got[:len(got)-1], want) {
		t.Errorf("got %q, want %q and one more", got, want)
	}
}

// TestDeletedOnce loses the responses of two deletions of one version. One of them is made, and it cannot be
// known which: so at most one is reported as made.
func TestDeletedOnce(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	mute := &c.members[0].clients.mute
	old := propose(t, l, put("pods", "a", "one", 0))
	var all sync.WaitGroup
	made := make([]store.Decision, 2)
	errs := make([]error, 2)
	mute.Store(true)
	for i := range made {
		all.Go(func() {
			made[i], errs[i] = l.Propose(t.Context(), &store.Txn{Writes: []store.Write{del("pods", "a", old)}})
		})
	}
	waitForFences(t, c.members[0], 1)
	mute.Store(false)
	all.Wait()
	if errs[0] == nil && errs[1] == nil && made[0].Made && made[1].Made {
		t.Errorf("both deletions are reported as made: %+v", made)
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, store.ErrUnknown) {
			t.Errorf("deletion %d: %v", i, err)
		}
	}
	if got := entries(follow(t, l, b.Head, propose(t, l, put("pods", "last", "", 0)))); len(got) != 3 {
		t.Errorf("got %d changes, want the object, its deletion and another object", len(got))
	}
}

// TestDeletedBetween loses the response of a creation. Another client deletes the object before the creation is
// repeated: it is reported as made, and is not made again.
func TestDeletedBetween(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	m := c.members[0]
	key := []byte(prefix + "/pods/a")
	m.clients.mute.Store(true)
	var proposing sync.WaitGroup
	var made store.Decision
	var err error
	proposing.Go(func() {
		made, err = l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "a", "one", 0)}})
	})
	var created int64
	for created == 0 && t.Context().Err() == nil {
		found, err := m.etcd.Server.Range(t.Context(), &pb.RangeRequest{Key: key})
		must(t, err)
		if len(found.Kvs) > 0 {
			created = found.Kvs[0].ModRevision
		}
	}
	_, failed := m.etcd.Server.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: key})
	must(t, failed)
	waitForFences(t, m, 1)
	m.clients.mute.Store(false)
	proposing.Wait()
	if err != nil || !made.Made || made.Revision != store.Revision(created) {
		t.Errorf("got %+v, %v, want it made at %d", made, err, created)
	}
	if got := text(entries(follow(t, l, b.Head, propose(t, l, put("pods", "last", "", 0))))); strings.Count(got, " pods a") != 2 {
		t.Errorf("the object was made again: %s", got)
	}
}

// TestUnreachable proposes while no member can be reached.
func TestUnreachable(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	r := propose(t, l, put("pods", "a", "one", 0))
	c.members[0].clients.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := l.Head(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("head: got %v, want the context's error", err)
	}
	_, err := l.Propose(ctx, &store.Txn{Writes: []store.Write{put("pods", "a", "two", r)}})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("propose: got %v, want the context's error alone", err)
	}
	c.members[0].clients.restore()
	propose(t, l, put("pods", "a", "two", r)) // waits for the connection
}

// TestForeignFence raises all fences as another server does.
func TestForeignFence(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	for i := range 64 {
		direct(t, c.members[0], fmt.Sprint(prefix, "/tidemark.dev/guards/.fences/", i), "")
	}
	r := propose(t, l, put("pods", "a", "one", 0))
	if d, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "a", "two", 0)}}); err != nil || d.Made {
		t.Errorf("exists: got %+v, %v", d, err)
	}
	propose(t, l, del("pods", "a", r))
}

// TestLeaderKill kills the leader of three members under writes.
func TestLeaderKill(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 3, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	const writers, each = 4, 40
	revisions := make([]map[string]store.Revision, writers)
	var all sync.WaitGroup
	half := make(chan struct{}, writers)
	for i := range writers {
		revisions[i] = map[string]store.Revision{}
		all.Go(func() {
			for j := range each {
				key := fmt.Sprintf("%d-%d", i, j)
				revisions[i][key] = propose(t, l, put("pods", key, "text", 0))
				if j == each/2 {
					half <- struct{}{}
				}
			}
		})
	}
	<-half
	began := time.Now()
	c.leader(t).stop()
	all.Wait()
	t.Logf("the writes ended %v after the kill", time.Since(began))
	last := propose(t, l, put("pods", "last", "", 0))
	seen := map[string]store.Revision{}
	for _, e := range entries(follow(t, l, b.Head, last)) {
		if seen[e.Key] != 0 || e.Object == nil {
			t.Errorf("%s was changed at %d, and again at %d", e.Key, seen[e.Key], e.Revision)
		}
		seen[e.Key] = e.Revision
	}
	for _, one := range revisions {
		for key, r := range one {
			if seen[key] != r {
				t.Errorf("%s: made at %d, and followed at %d", key, r, seen[key])
			}
		}
	}
}

// TestMemberGone follows through the loss of each connection and member in turn.
func TestMemberGone(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 3, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	got := make(chan store.Entry, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		for b, err := range l.Follow(ctx, b.Head) {
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("follow: %v", err)
				}
				return
			}
			for _, e := range b.Entries {
				got <- e
			}
		}
	})
	defer following.Wait()
	defer cancel()
	for i, m := range c.members {
		m.clients.cut()
		r := propose(t, l, put("pods", fmt.Sprint(i), "text", 0))
		select {
		case e := <-got:
			if e.Revision != r {
				t.Errorf("got revision %d, want %d", e.Revision, r)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the write without member %d did not arrive", i)
		}
		m.clients.restore()
	}
}

func TestCompacted(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	r1 := propose(t, l, put("pods", "a", "one", 0))
	r2 := propose(t, l, put("pods", "a", "two", r1))
	r3 := propose(t, l, put("pods", "a", "three", r2))
	compact(t, c.members[0], r2)
	expired := func(what string, err error) {
		t.Helper()
		if e := (*store.ExpiredError)(nil); !errors.As(err, &e) || e.Floor != r2 {
			t.Errorf("%s: got %v, want it expired below %d", what, err, r2)
		}
	}
	for _, err := range l.Follow(t.Context(), b.Head) {
		expired("follow", err)
	}
	for _, err := range l.Changes(t.Context(), "pods", b.Head, r3) {
		expired("changes", err)
	}
	for _, err := range l.ObjectsAt(t.Context(), "pods", r1, "", "") {
		expired("objects", err)
	}
	if got := entries(follow(t, l, r2, r3)); len(got) != 1 {
		t.Errorf("follow from the floor: got %d changes, want 1", len(got))
	}
	var got []store.Entry
	for e, err := range l.Changes(t.Context(), "pods", r2, r3) {
		if err != nil {
			t.Errorf("changes from the floor: %v", err)
		}
		got = append(got, e)
	}
	if len(got) != 1 || got[0].Before == nil || got[0].Before.Modified != r2 {
		t.Errorf("changes from the floor: got\n%s", text(got))
	}
	if _, b := load(t, open(t, c, nil)); b.Floor != r2 || b.Head != r3 {
		t.Errorf("load: got %+v, want the floor %d and the head %d", b, r2, r3)
	}
}

// TestCompaction has two logs compact: one of them does, and a follower that compacts nothing learns it.
func TestCompaction(t *testing.T) {
	c := startCluster(t, 1, nil)
	often := func(o *etcdlog.Options) { o.CompactionInterval = 300 * time.Millisecond }
	l, other := open(t, c, often), open(t, c, nil)
	open(t, c, often)
	_, b := load(t, l)
	first := propose(t, l, put("pods", "a", "one", 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for b, err := range other.Follow(ctx, b.Head) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Floor > b.Through {
			t.Fatalf("the floor %d is above %d", b.Floor, b.Through)
		}
		if b.Floor > first {
			break
		}
	}
	for _, err := range other.ObjectsAt(t.Context(), "pods", first, "", "") {
		if e := (*store.ExpiredError)(nil); err != nil && !errors.As(err, &e) {
			t.Errorf("objects: %v", err)
		}
	}
	r, err := c.members[0].etcd.Server.Range(t.Context(), &pb.RangeRequest{Key: []byte("compact_rev_key")})
	if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Version < 2 {
		t.Errorf("compact_rev_key: got %v, %v", r, err)
	}
}

// TestNoSpace fills a small database. The transaction that fills it is made although etcd responds with an
// error, and must be reported as made.
func TestNoSpace(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 1, func(o *embed.Config) { o.QuotaBackendBytes = 16 << 20 })
	l := open(t, c, nil)
	made := map[string]store.Revision{}
	large := strings.Repeat("x", 700<<10)
	var failed error
	var mu sync.Mutex
	for i := 0; failed == nil && i < 50; i++ {
		var all sync.WaitGroup
		for j := range 4 { // those at once pass etcd's first check, which precedes raft
			all.Go(func() {
				key := fmt.Sprint(i, "-", j)
				d, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", key, large, 0)}})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made[key] = d.Revision
				} else {
					failed = err
				}
			})
		}
		all.Wait()
	}
	if !errors.Is(failed, store.ErrNoSpace) || len(made) == 0 {
		t.Fatalf("after %d objects: got %v, want no space", len(made), failed)
	}
	if _, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "more", "text", 0)}}); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("another write: got %v, want no space", err)
	}
	all, _ := load(t, l)
	if len(all) != len(made) {
		t.Errorf("%d objects were reported as made, and %d are stored", len(made), len(all))
	}
	for key, r := range made {
		propose(t, l, del("pods", key, r))
	}
}

// replaceData stops all members, changes their data, and starts them again.
func replaceData(t testing.TB, c *cluster, change func(dir string)) {
	t.Helper()
	for _, m := range c.members {
		m.stop()
	}
	for _, m := range c.members {
		change(m.config().Dir)
	}
	c.startAll(t)
}

// TestReset replaces the data of the cluster while a log follows it.
func TestReset(t *testing.T) {
	for _, row := range []struct {
		name    string
		replace func(t *testing.T, c *cluster, backup string)
	}{
		{"empty", func(t *testing.T, c *cluster, _ string) {
			replaceData(t, c, func(dir string) { must(t, os.RemoveAll(dir)) })
		}},
		{"restored", func(t *testing.T, c *cluster, backup string) {
			replaceData(t, c, func(dir string) {
				must(t, os.RemoveAll(dir))
				must(t, os.CopyFS(dir, os.DirFS(backup)))
			})
		}},
		{"restored, and ahead again", func(t *testing.T, c *cluster, backup string) {
			m := c.members[0]
			m.clients.cut()
			replaceData(t, c, func(dir string) {
				must(t, os.RemoveAll(dir))
				must(t, os.CopyFS(dir, os.DirFS(backup)))
			})
			m.clients.cut()
			for i := range 20 {
				direct(t, m, fmt.Sprint(prefix, "/pods/other-", i), "0:{}")
			}
			m.clients.restore()
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 1, nil)
			l := open(t, c, nil)
			_, b := load(t, l)
			propose(t, l, put("pods", "a", "one", 0))
			backup := filepath.Join(t.TempDir(), "backup")
			replaceData(t, c, func(dir string) { must(t, os.CopyFS(backup, os.DirFS(dir))) })
			last := propose(t, l, put("pods", "b", "one", 0))
			ended := make(chan error, 1)
			reached := make(chan struct{})
			go func() {
				for b, err := range l.Follow(t.Context(), b.Head) {
					if err != nil {
						ended <- err
						return
					}
					if b.Through == last {
						close(reached)
					}
				}
			}()
			<-reached
			row.replace(t, c, backup)
			select {
			case err := <-ended:
				if !errors.Is(err, store.ErrReset) {
					t.Errorf("got %v, want ErrReset", err)
				}
			case <-time.After(time.Minute):
				t.Error("the follower has not noticed")
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestForeignCompactKey: a revision in compact_rev_key that etcd has not reached does not end the history.
func TestForeignCompactKey(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	first := propose(t, l, put("pods", "a", "one", 0))
	for _, value := range []string{"999999999", "99999999999999999999", "-1", "rubbish"} {
		_, err := c.members[0].etcd.Server.Put(t.Context(), &pb.PutRequest{Key: []byte("compact_rev_key"), Value: []byte(value)})
		must(t, err)
	}
	last := propose(t, l, put("pods", "b", "two", 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for b, err := range l.Follow(ctx, b.Head) {
		must(t, err)
		if b.Floor > first {
			t.Fatalf("the history begins at %d", b.Floor)
		}
		if b.Through >= last {
			break
		}
	}
}

// TestLease lets objects end: all of a lease in one revision, and not those that were written again.
func TestLease(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 1, nil)
	l := open(t, c, func(o *etcdlog.Options) {
		o.TTL = func(collection string) time.Duration {
			if collection == "events" {
				return time.Hour
			}
			return 0
		}
		o.LeaseReuse = 15 * time.Second // so much time have the writes that share a lease
	})
	server := c.members[0].etcd.Server
	leases := func() []*pb.LeaseStatus {
		found, err := server.LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
		must(t, err)
		return found.Leases
	}
	_, b := load(t, l)
	kept := propose(t, l, put("pods", "kept", "text", 0))
	for _, key := range []string{"a", "b", "c"} {
		propose(t, l, put("events", key, "text", 0))
	}
	again := propose(t, l, put("events", "again", "text", 0))
	one := leases()
	if len(one) != 1 {
		t.Fatalf("the leases are %v, want one", one)
	}
	two := one
	await.True(t, "the first lease is not given out any more", func() bool {
		again = propose(t, l, put("events", "again", "later", again))
		two = leases()
		return len(two) == 2
	})
	later := slices.DeleteFunc(two, func(l *pb.LeaseStatus) bool { return l.ID == one[0].ID })
	for _, lease := range append(one, later...) {
		left, err := server.LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: lease.ID})
		must(t, err)
		if left.GrantedTTL < 3600 || left.GrantedTTL > 3600+15 {
			t.Errorf("a lease of %d s, want an hour, and the time in which it is given out", left.GrantedTTL)
		}
		_, err = server.LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: lease.ID}) // as its end does
		must(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := map[string]store.Revision{}
	for b, err := range l.Follow(ctx, b.Head) {
		if err != nil {
			t.Fatalf("got %v, want the ends of all events", err)
		}
		for _, e := range b.Entries {
			if e.Object == nil {
				ended[e.Key] = e.Revision
			}
		}
		if ended["again"] != 0 {
			break
		}
	}
	if r := ended["a"]; r < again || ended["b"] != r || ended["c"] != r || ended["again"] <= r || ended["kept"] != 0 {
		t.Errorf("got %v, want a, b and c in one revision after %d, then again, and not the pod of %d", ended, again, kept)
	}
}

// TestLeaseWaits: a write whose context ends does not wait for the lease that another write asks for.
func TestLeaseWaits(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, func(o *etcdlog.Options) { o.TTL = func(string) time.Duration { return time.Hour } })
	load(t, l)
	c.members[0].clients.mute.Store(true)
	first, second := make(chan error, 1), make(chan error, 1)
	write := func(ctx context.Context, key string, done chan<- error) {
		_, err := l.Propose(ctx, &store.Txn{Writes: []store.Write{put("events", key, "text", 0)}})
		done <- err
	}
	go write(t.Context(), "a", first)
	await.True(t, "the lease, whose grant is lost", func() bool {
		found, err := c.members[0].etcd.Server.LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
		must(t, err)
		return len(found.Leases) > 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go write(ctx, "b", second)
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the write whose context has ended: %v", err)
		}
	case err := <-first:
		t.Errorf("the write whose context has ended waits for the other one, which ended with %v", err)
	}
	c.members[0].clients.mute.Store(false)
}

// TestLarge follows far more than one message holds.
func TestLarge(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	_, b := load(t, l)
	large := strings.Repeat("x", 600<<10)
	var want []store.Revision
	for i := range 12 {
		want = append(want, propose(t, l, put("pods", fmt.Sprint("a", i), large, 0), put("pods", fmt.Sprint("b", i), large, 0)))
	}
	batches := follow(t, open(t, c, nil), b.Head, want[len(want)-1])
	got := map[store.Revision]int{}
	for _, b := range batches {
		for _, e := range b.Entries {
			got[e.Revision]++
		}
		if e := b.Entries[len(b.Entries)-1]; got[e.Revision] != 2 {
			t.Errorf("a batch through %d ends within revision %d", b.Through, e.Revision)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d revisions in %d batches, want %d", len(got), len(batches), len(want))
	}
	t.Run("Usage", func(t *testing.T) {
		small := open(t, c, func(o *etcdlog.Options) { o.UsageInterval = 10 * time.Millisecond })
		await.True(t, "the size of the database", func() bool { return small.Usage().TotalBytes > 12*600<<10 })
	})
}

// TestLargePages reads large values behind small ones. A reader that wants one object gets the values of few.
func TestLargePages(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	load(t, l)
	const small, large = 16, 80 // the small ones fill the first page
	for i := range small {
		propose(t, l, put("pods", fmt.Sprintf("a%02d", i), "x", 0))
	}
	text := strings.Repeat("x", 1<<20)
	var at store.Revision
	for i := range large {
		at = propose(t, l, put("pods", fmt.Sprintf("b%02d", i), text, 0))
	}
	n := 0
	for _, err := range l.ObjectsAt(t.Context(), "pods", at, "", "") {
		must(t, err)
		n++
	}
	if n != small+large {
		t.Errorf("got %d objects, want %d", n, small+large)
	}
	before := c.members[0].clients.responded.Load()
	for o, err := range l.ObjectsAt(t.Context(), "pods", at, "b", "") {
		must(t, err)
		if o.Key != "b00" {
			t.Errorf("got %s first, want b00", o.Key)
		}
		break
	}
	if got := c.members[0].clients.responded.Load() - before; got > 20<<20 {
		t.Errorf("etcd sent %d MiB for one object of 1 MiB", got>>20)
	}
}

// TestNoKey: an object whose key in etcd would be that of something else is refused.
func TestNoKey(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	_, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("tidemark.dev/guards", "ns/a", "x", 0)}})
	if unfit := new(*store.UnfitError); !errors.As(err, unfit) {
		t.Errorf("got %v, want that the write does not fit", err)
	}
}
