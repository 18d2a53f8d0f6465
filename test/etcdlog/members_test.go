package etcdlog_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestServersThroughLostMembers has clients write and read at two servers while members of etcd are lost: the leader,
// one member, and two, which leave no quorum. Acknowledged writes stay, reads do not go back, and /readyz fails only
// while there is no quorum. The servers are not restarted.
func TestServersThroughLostMembers(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 3, nil)
	_, clients := severalServers(t, c, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	const counters = 4
	var acknowledged [counters]atomic.Int64
	for i := range counters {
		name := fmt.Sprint("n", i)
		_, err := clients[0].CoreV1().ConfigMaps("default").Create(ctx, counter(name, 0), metav1.CreateOptions{})
		must(t, err)
		working.Go(func() { count(ctx, t, clients[i%2], name, &acknowledged[i]) })
		working.Go(func() { readForward(ctx, t, clients, name, &acknowledged[i]) })
	}
	progress := func(phase string) {
		t.Helper()
		for i := range counters {
			from := acknowledged[i].Load()
			await.True(t, fmt.Sprintf("%s: writes of counter %d", phase, i), func() bool { return acknowledged[i].Load() >= from+3 })
		}
	}
	ready := func(client kubernetes.Interface) bool {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err == nil
	}
	allReady := func(phase string, want bool) {
		t.Helper()
		for i, client := range clients {
			await.True(t, fmt.Sprintf("%s: /readyz of server %d is %v", phase, i, want), func() bool { return ready(client) == want })
		}
	}
	progress("all members")
	for range 2 {
		first := c.leader(t)
		first.stop()
		progress("without the leader")
		allReady("without the leader", true)
		second := c.leader(t)
		second.stop()
		allReady("without a quorum", false)
		second.start(t)
		allReady("with two members", true)
		progress("with two members")
		first.start(t)
		progress("all members again")
	}
	c.leader(t).peers.cut() // its clients reach it, and it has no quorum
	progress("with a leader that is cut off")
	for _, m := range c.members {
		m.peers.restore()
	}
	progress("all members at last")
	cancel()
	working.Wait()
	for i := range counters {
		for _, client := range clients {
			m, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), fmt.Sprint("n", i), metav1.GetOptions{})
			must(t, err)
			if got := countIn(m); got < acknowledged[i].Load() {
				t.Errorf("counter %d is %d, and %d was acknowledged", i, got, acknowledged[i].Load())
			}
		}
	}
}

func counter(name string, n int64) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": strconv.FormatInt(n, 10)}}
}

func countIn(m *corev1.ConfigMap) int64 {
	n, _ := strconv.ParseInt(m.Data["n"], 10, 64)
	return n
}

// count increments a counter until the context ends. A request may fail; its outcome is unknown
// then.
func count(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, acknowledged *atomic.Int64) {
	for n := int64(1); ctx.Err() == nil; n++ {
		m, err := client.CoreV1().ConfigMaps("default").Update(ctx, counter(name, n), metav1.UpdateOptions{})
		switch {
		case err == nil && countIn(m) == n:
			acknowledged.Store(n)
		case err == nil:
			t.Errorf("the update of %s to %d returned %v", name, n, m.Data)
		case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			t.Errorf("the update of %s to %d: %v", name, n, err)
		}
	}
}

// readForward reads a counter at the servers in turn. Each value is at least the previous one, and
// at least the one acknowledged before the request.
func readForward(ctx context.Context, t *testing.T, clients []kubernetes.Interface, name string, acknowledged *atomic.Int64) {
	var last int64
	for i := 0; ctx.Err() == nil; i++ {
		least := max(last, acknowledged.Load())
		m, err := clients[i%len(clients)].CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			t.Errorf("a read of %s at server %d: %v", name, i%len(clients), err)
		case err == nil:
			if last = countIn(m); last < least {
				t.Errorf("a read of %s at server %d is %d, after %d", name, i%len(clients), last, least)
			}
		}
	}
}
