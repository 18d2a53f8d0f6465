package etcdlog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/freeport"
)

// cluster is an etcd cluster in this process. Its members reach each other, and clients reach them,
// through proxies.
type cluster struct {
	members []*member
}

// member is one member of a cluster.
type member struct {
	name           string
	config         func() *embed.Config
	etcd           *embed.Etcd // nil: stopped
	clients, peers *proxy
}

// startCluster starts a cluster of members. Change may change their configuration; nil: it does not.
func startCluster(t testing.TB, members int, change func(*embed.Config)) *cluster {
	t.Helper()
	c := new(cluster)
	root := t.TempDir()
	var initial []string
	for i := range members {
		m := &member{name: fmt.Sprint("m", i)}
		var clientAddress, peerAddress string
		m.clients, clientAddress = newProxy(t)
		m.peers, peerAddress = newProxy(t)
		initial = append(initial, m.name+"=http://"+m.peers.address())
		dir := filepath.Join(root, m.name)
		m.config = func() *embed.Config {
			o := embed.NewConfig()
			o.Name, o.Dir = m.name, dir
			o.ListenClientUrls, o.AdvertiseClientUrls = urls(clientAddress), urls(m.clients.address())
			o.ListenPeerUrls, o.AdvertisePeerUrls = urls(peerAddress), urls(m.peers.address())
			o.InitialCluster = strings.Join(initial, ",")
			o.TickMs, o.ElectionMs = 20, 200
			o.UnsafeNoFsync = true
			o.LogLevel = "panic"
			if os.Getenv("ETCD_LOG") != "" {
				o.LogLevel = os.Getenv("ETCD_LOG")
			}
			o.LogOutputs = []string{"stderr"}
			if change != nil {
				change(o)
			}
			return o
		}
		c.members = append(c.members, m)
	}
	c.startAll(t)
	t.Cleanup(func() {
		for _, m := range c.members {
			m.stop()
			m.clients.close()
			m.peers.close()
		}
	})
	return c
}

func urls(address string) []url.URL { return []url.URL{{Scheme: "http", Host: address}} }

func (c *cluster) startAll(t testing.TB) {
	t.Helper()
	var starting sync.WaitGroup
	for _, m := range c.members {
		starting.Go(func() { m.start(t) })
	}
	starting.Wait()
}

// start starts a stopped member, and waits until it is ready.
func (m *member) start(t testing.TB) {
	t.Helper()
	var e *embed.Etcd
	var err error
	// A child process that another test starts may have the old listener for a moment.
	await.True(t, "the address of the member", func() bool {
		e, err = embed.StartEtcd(m.config())
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	if err != nil {
		t.Errorf("start etcd: %v", err)
		return
	}
	m.etcd = e
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Errorf("member %s is not ready", m.name)
	}
}

// stop stops a member as a kill does: it does not hand over its leadership.
func (m *member) stop() {
	if m.etcd != nil {
		m.clients.cut()
		m.peers.cut()
		m.etcd.Server.HardStop()
		m.etcd.Close()
		m.etcd = nil
		m.clients.restore()
		m.peers.restore()
	}
}

// servers are the URLs of all members.
func (c *cluster) servers() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, "http://"+m.clients.address())
	}
	return all
}

// leader returns the member that leads.
func (c *cluster) leader(t testing.TB) *member {
	t.Helper()
	var leader *member
	await.True(t, "a leader of the cluster", func() bool {
		for _, m := range c.members {
			if m.etcd != nil && m.etcd.Server.Leader() == m.etcd.Server.MemberID() {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

// proxy forwards connections to an address, until it is cut.
type proxy struct {
	listener net.Listener
	to       string
	isCut    atomic.Bool
	// mute: connections stay open, requests pass, and responses wait.
	mute atomic.Bool
	// responded is the bytes of responses.
	responded atomic.Int64
	mu        sync.Mutex
	open      map[net.Conn]bool
}

// newProxy returns a proxy, and the free address that it forwards to.
func newProxy(t testing.TB) (*proxy, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, to: freeport.Address(t), open: map[net.Conn]bool{}}
	go p.run()
	return p, p.to
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) run() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.isCut.Load() {
			in.Close()
			continue
		}
		go p.forward(in)
	}
}

func (p *proxy) forward(in net.Conn) {
	out, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.to)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	p.open[in], p.open[out] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(out, in, nil, nil) })
	both.Go(func() { p.copy(in, out, &p.mute, &p.responded) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, in)
	delete(p.open, out)
	p.mu.Unlock()
}

// copy forwards one direction. It waits while wait is true; nil: it never waits. It adds the bytes to count, unless that is
// nil.
func (p *proxy) copy(to, from net.Conn, wait *atomic.Bool, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for wait != nil && wait.Load() && !p.isCut.Load() {
			time.Sleep(5 * time.Millisecond)
		}
		if n > 0 {
			if count != nil {
				count.Add(int64(n))
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut closes all connections, and refuses new ones until restore.
func (p *proxy) cut() {
	p.isCut.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
}

func (p *proxy) restore() { p.isCut.Store(false) }

func (p *proxy) close() {
	p.cut()
	p.listener.Close()
}
