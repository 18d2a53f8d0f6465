package kills

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// faults kills and cuts off processes, with a chance of its own.
type faults struct {
	w      *world
	chance *rand.Rand
	counts map[string]int
}

// upTo returns a random time.
func (f *faults) upTo(most time.Duration) time.Duration {
	return time.Duration(f.chance.Int64N(int64(most)))
}

func (f *faults) member() *member { return f.w.members[f.chance.IntN(three)] }

func (f *faults) server() *server { return f.w.servers[f.chance.IntN(three)] }

// kinds are the kinds of kills. Each comes as often as the others.
var kinds = []string{"a server", "a member", "the leader of etcd", "the leader of the servers"}

// kill kills a process of a kind, and starts it again. Half of the kills fall into another fault.
func (f *faults) kill(kind string) {
	restore := func() {}
	if f.chance.IntN(2) == 0 {
		restore = f.disturb()
		time.Sleep(f.upTo(time.Second))
	}
	p, ready := f.victim(kind)
	p.kill()
	f.counts["killed "+kind]++
	time.Sleep(f.upTo(1500 * time.Millisecond))
	p.start(f.w.t)
	time.Sleep(f.upTo(time.Second))
	restore()
	ready()
	time.Sleep(f.upTo(time.Second)) // of load
}

func (f *faults) victim(kind string) (p *process, ready func()) {
	m, s := f.member(), f.server()
	switch kind {
	case "the leader of etcd":
		if leader := f.w.etcdLeader(); leader != nil {
			m = leader
		}
	case "the leader of the servers":
		if leader := f.w.leader(); leader != nil {
			s = leader
		}
	}
	if kind == "a member" || kind == "the leader of etcd" {
		return &m.process, func() { f.w.memberReady(m) }
	}
	return &s.process, func() { f.w.serverReady(s) }
}

// disturb begins a fault that kills nothing. The caller calls restore.
func (f *faults) disturb() (restore func()) {
	m, s := f.member(), f.server()
	if f.chance.IntN(2) == 0 {
		if leader := f.w.etcdLeader(); leader != nil {
			m = leader
		}
	}
	l := s.links[f.chance.IntN(three)]
	switch f.chance.IntN(5) {
	case 0:
		f.counts["stopped a server"]++
		s.signal(syscall.SIGSTOP)
		return func() { s.signal(syscall.SIGCONT) }
	case 1:
		f.counts["stopped a member"]++
		m.signal(syscall.SIGSTOP)
		return func() { m.signal(syscall.SIGCONT) }
	case 2:
		f.counts["cut a member off the others"]++
		return f.w.isolate(m)
	case 3:
		f.counts["cut a server off a member"]++
		l.set(func() { l.cut = true })
		return func() { l.set(func() { l.cut = false }) }
	}
	f.counts["held back the responses of a member to a server"]++
	l.set(func() { l.mute = true })
	return func() { // the responses that were held back are lost
		l.set(func() { l.cut, l.mute = true, false })
		l.set(func() { l.cut = false })
	}
}

// isolate cuts a member off the others. Servers still reach it.
func (w *world) isolate(m *member) (restore func()) {
	id := ""
	ctx, cancel := context.WithTimeout(context.Background(), longWait)
	defer cancel()
	var all *clientv3.MemberListResponse
	until(w.t, "the list of members", func() (ok bool) {
		var err error
		all, err = w.etcd.MemberList(ctx)
		return err == nil
	})
	for _, one := range all.Members {
		if one.Name == m.name {
			id = strconv.FormatUint(one.ID, 16)
		}
	}
	set := func(cut bool) {
		for _, other := range w.members {
			other.peers.set(func() {
				if other == m {
					other.peers.cut = cut
				} else {
					other.peers.off[id] = cut
				}
			})
		}
	}
	set(true)
	return func() { set(false) }
}

// replace replaces a member by one without data.
func (f *faults) replace() {
	w, m := f.w, f.member()
	m.kill()
	ctx, cancel := context.WithTimeout(context.Background(), longWait)
	defer cancel()
	until(w.t, "the member is removed", func() bool {
		all, err := w.etcd.MemberList(ctx)
		if err != nil {
			return false
		}
		for _, one := range all.Members {
			if one.Name == m.name {
				_, _ = w.etcd.MemberRemove(ctx, one.ID)
				return false
			}
		}
		return true
	})
	until(w.t, "the member is added", func() bool {
		_, err := w.etcd.MemberAdd(ctx, []string{"http://" + m.config.AdvertisePeers})
		return err == nil
	})
	w.replaced++
	m.config.Dir = fmt.Sprint(m.config.Dir, "-", w.replaced)
	m.config.State = "existing"
	m.start(w.t)
	w.memberReady(m)
	f.counts["replaced a member"]++
}
