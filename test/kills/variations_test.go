package kills

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestCompactions compacts etcd each second, while servers are killed. A watch lists again only if
// etcd has compacted unread changes.
func TestCompactions(t *testing.T) {
	tier.Full(t)
	x := newTrial(t, options{serverArgs: []string{"--etcd-compaction-interval=1s"}})
	f := x.faults()
	before := x.turns()
	x.round(func() {
		for _, kind := range []string{kinds[0], kinds[3], kinds[2]} {
			f.kill(kind)
		}
		until(t, "five more compactions", func() bool { return x.turns() >= before+5 })
	})
	x.report(f)
}

// turns returns how many times servers have taken a turn to compact.
func (x *trial) turns() (n int64) {
	until(x.t, "etcd responds", func() bool {
		response, err := x.w.etcd.Get(x.t.Context(), "compact_rev_key")
		if err == nil && len(response.Kvs) > 0 {
			n = response.Kvs[0].Version
		}
		return err == nil
	})
	return n
}

// TestMemberReplaced replaces a member by an empty one under load, and then kills the leader.
func TestMemberReplaced(t *testing.T) {
	tier.Full(t)
	x := newTrial(t, options{})
	f := x.faults()
	x.round(func() {
		f.replace()
		f.kill("the leader of etcd")
	})
	x.report(f)
}

// TestDatabaseFull fills the database of etcd under load. Writes are refused with 507 then, and none of
// those is made; reads and deletions go on. After the space is given back, writes succeed again.
func TestDatabaseFull(t *testing.T) {
	tier.Full(t)
	x := newTrial(t, options{quota: 16 << 20})
	s := x.w.servers[0]
	filler := func(i int) string { return fmt.Sprint("filler-", i) }
	large := strings.Repeat("x", 700<<10)
	made := 0
	x.round(func() {
		until(t, "the database is full", func() bool {
			body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"value":%q}}`, filler(made), large)
			code, text, err := s.do(requestTimeout, http.MethodPost, collection, "", body)
			switch {
			case err == nil && code == http.StatusInsufficientStorage:
				return true
			case err == nil && (code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests): // it was not made
				return false
			case err != nil || code != http.StatusCreated && code != http.StatusGatewayTimeout:
				t.Fatalf("a create: %d, %v, %.300s", code, err, text)
			}
			made++
			return false
		})
		time.Sleep(time.Second) // of load on a full database
		for i := range made {
			until(t, "a deletion passes", func() bool {
				code, text, err := s.do(requestTimeout, http.MethodDelete, collection+"/"+filler(i), "", nil)
				if code == http.StatusInsufficientStorage {
					t.Fatalf("a deletion: %s", text)
				}
				return err == nil && (code == http.StatusOK || code == http.StatusNotFound)
			})
		}
		x.w.giveBack()
		until(t, "writes succeed again", func() bool {
			body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"again"}}`)
			code, _, err := s.do(requestTimeout, http.MethodPost, collection, "", body)
			return err == nil && (code == http.StatusCreated || code == http.StatusConflict)
		})
	})
	x.report(x.faults())
	refused := 0
	for code, n := range x.r.codes {
		if strings.HasSuffix(code, " 507") {
			refused += n
		}
	}
	if made == 0 || refused == 0 {
		t.Errorf("%d objects were made, and %d writes of the clients refused", made, refused)
	}
}

// giveBack compacts and defragments etcd, and disarms its alarms.
func (w *world) giveBack() {
	ctx := w.t.Context()
	head, err := w.etcd.Get(ctx, "/none")
	must(w.t, err)
	_, err = w.etcd.Compact(ctx, head.Header.Revision, clientv3.WithCompactPhysical())
	must(w.t, err)
	for _, m := range w.members {
		_, err := w.etcd.Defragment(ctx, "http://"+m.config.Clients)
		must(w.t, err)
	}
	until(w.t, "no alarm is left", func() bool {
		all, err := w.etcd.AlarmList(ctx)
		if err != nil {
			return false
		}
		for _, a := range all.Alarms {
			_, _ = w.etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.MemberID, Alarm: pb.AlarmType_NOSPACE})
		}
		return len(all.Alarms) == 0
	})
}

// TestRestored restores a backup of etcd below running servers. They end, say why, and serve the backup
// after a restart.
func TestRestored(t *testing.T) {
	tier.Full(t)
	x := newTrial(t, options{})
	x.round(func() { time.Sleep(time.Second) })
	backup := filepath.Join(t.TempDir(), "backup")
	each := func(f func(m *member, backup string)) {
		for _, m := range x.w.members {
			m.kill()
		}
		for _, m := range x.w.members {
			f(m, filepath.Join(backup, m.name))
			m.start(t)
		}
		for _, m := range x.w.members {
			x.w.memberReady(m)
		}
	}
	each(func(m *member, backup string) { must(t, os.CopyFS(backup, os.DirFS(m.config.Dir))) })
	want := x.start // it is in the backup
	x.round(func() { time.Sleep(time.Second) })
	x.stop()
	for _, s := range x.w.servers {
		s.mu.Lock()
		s.expected = true
		s.mu.Unlock()
	}
	each(func(m *member, backup string) {
		must(t, os.RemoveAll(m.config.Dir))
		must(t, os.CopyFS(m.config.Dir, os.DirFS(backup)))
	})
	for _, s := range x.w.servers {
		select {
		case <-s.ended:
		case <-time.After(longWait):
			t.Fatalf("%s has not ended", s.name)
		}
		if text := s.tail(); !strings.Contains(text, "restored from a backup") {
			t.Errorf("%s does not say why it ended:\n%s", s.name, text)
		}
		s.start(t)
	}
	for _, s := range x.w.servers {
		x.w.serverReady(s)
	}
	wrong := x.final(&history{start: want})
	if len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
	code, text, err := x.w.servers[0].do(requestTimeout, http.MethodGet, fmt.Sprintf("%s?resourceVersion=%d", collection, x.from), "", nil)
	if err != nil || code != http.StatusGatewayTimeout || !strings.Contains(string(text), "Too large resource version") {
		t.Errorf("a list at a revision that was lost: %d, %v, %s", code, err, text)
	}
}
