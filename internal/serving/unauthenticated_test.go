package serving

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// from is a connection from an address.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

// TestVictim: which connection is closed for a new one.
func TestVictim(t *testing.T) {
	type open struct {
		name, ip string
		age      time.Duration
		stage    int32
	}
	for name, test := range map[string]struct {
		open  []open
		out   string // the one that makes room; empty: none does
		again time.Duration
	}{
		"none":               {out: "", again: authGrace},
		"authenticated":      {open: []open{{"a", "10.0.0.1", time.Hour, authenticated}}, again: authGrace},
		"one that is silent": {open: []open{{"a", "10.0.0.1", firstByteGrace, connected}}, out: "a"},
		"too early":          {open: []open{{"a", "10.0.0.1", firstByteGrace - 1, connected}}, again: 1},
		"in handshake":       {open: []open{{"a", "10.0.0.1", authGrace - 1, handshaking}}, again: 1},
		"anonymous":          {open: []open{{"a", "10.0.0.1", authGrace, anonymous}}, out: "a"},
		"one of two":         {open: []open{{"a", "10.0.0.1", time.Hour, authenticated}, {"b", "10.0.0.1", time.Minute, anonymous}}, out: "b"},
		"the oldest":         {open: []open{{"a", "10.0.0.1", time.Hour, handshaking}, {"b", "10.0.0.1", time.Minute, handshaking}}, out: "a"},
		"the earliest stage": {open: []open{{"a", "10.0.0.1", time.Hour, anonymous}, {"b", "10.0.0.1", time.Hour, handshaking}, {"c", "10.0.0.1", time.Minute, connected}}, out: "c"},
		"the address with the most": {open: []open{
			{"a", "10.0.0.1", time.Hour, connected}, {"b", "10.0.0.2", time.Minute, anonymous}, {"c", "10.0.0.2", time.Minute, anonymous},
		}, out: "b"},
		"between equal addresses, the earlier stage": {open: []open{
			{"a", "10.0.0.1", time.Hour, anonymous}, {"b", "10.0.0.2", time.Minute, handshaking},
		}, out: "b"},
		"a network of IPv6": {open: []open{
			{"a", "10.0.0.1", time.Hour, connected}, {"b", "2001:db8::1", time.Minute, connected}, {"c", "2001:db8::2", time.Minute, connected},
		}, out: "b"},
		"IPv4 in IPv6": {open: []open{
			{"a", "10.0.0.1", time.Hour, connected}, {"b", "10.0.0.2", time.Minute, connected}, {"c", "::ffff:10.0.0.2", time.Minute, connected},
		}, out: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			l := newListener(nil, listenerLimits{connections: 1000})
			names := map[*connection]string{}
			for _, o := range test.open {
				c := &connection{Conn: from{ip: o.ip}, l: l, since: now.Add(-o.age)}
				names[c] = o.name
				if len(l.unauthenticated.add(c, now)) > 0 {
					t.Errorf("%s pushed one out", o.name)
				}
				for stage := connected + 1; int32(stage) <= o.stage; stage++ {
					c.advance(int32(stage))
				}
			}
			out, again := l.unauthenticated.victim(now)
			if names[out] != test.out || again != test.again {
				t.Errorf("%q makes room, or look again in %v; want %q, %v", names[out], again, test.out, test.again)
			}
			for c := range names {
				l.unauthenticated.remove(c)
				l.unauthenticated.remove(c)
			}
			if len(l.unauthenticated.peers) != 0 || len(l.unauthenticated.order) != 0 {
				t.Error("something is left")
			}
		})
	}
}

// TestShare: an address that has more than its share loses its own connections, and only
// those that had their time; with the next one it has no more than its share again.
func TestShare(t *testing.T) {
	now := time.Now()
	l := newListener(nil, listenerLimits{connections: 200})
	add := func(ip string, age time.Duration) []*connection {
		return l.unauthenticated.add(&connection{Conn: from{ip: ip}, l: l, since: now.Add(-age)}, now)
	}
	count := func(ip string) int {
		p := l.unauthenticated.peers[addressOf(from{ip: ip}.RemoteAddr())]
		return p.count()
	}
	for range 100 {
		if len(add("10.0.0.1", time.Minute)) > 0 {
			t.Fatal("below the share")
		}
	}
	victims := add("10.0.0.1", 0)
	if len(victims) != 1 || victims[0].RemoteAddr().String() != "10.0.0.1:1" {
		t.Fatalf("%d victims: %v", len(victims), victims)
	}
	if len(add("10.0.0.2", 0)) > 0 {
		t.Error("another address pays for it")
	}
	for range 150 {
		if len(add("10.0.0.3", 0)) > 0 {
			t.Error("one within its grace has to go")
		}
	}
	now = now.Add(firstByteGrace)
	if victims := add("10.0.0.3", 0); len(victims) != 51 || count("10.0.0.3") != 100 {
		t.Errorf("%d victims, %d are left, want 51, 100", len(victims), count("10.0.0.3"))
	}
	if n := count("10.0.0.1"); n != 100 {
		t.Errorf("the first address has %d", n)
	}
	for _, c := range victims {
		l.unauthenticated.remove(c) // as Close does: it is out already
		l.unauthenticated.moved(c)
	}
	if n := count("10.0.0.1"); n != 100 {
		t.Errorf("the first address has %d after its victims are closed", n)
	}
	for places, want := range map[int]time.Duration{1: firstByteGrace, 16: 16 * time.Second / 70, 1000: authGrace} {
		if got := newListener(nil, listenerLimits{connections: places}).unauthenticated.grace[handshaking]; got != want {
			t.Errorf("with %d places: %v, want %v", places, got, want)
		}
	}
}

// TestMost: all addresses together have no more unauthenticated connections than the memory allows, but for those within
// their grace. The address with the most pays first, and cannot protect the old ones of others by new ones of its own.
func TestMost(t *testing.T) {
	now := time.Now()
	l := newListener(nil, listenerLimits{connections: 1000, unauthenticated: 10})
	add := func(ip string, age time.Duration) (out []string) {
		for _, c := range l.unauthenticated.add(&connection{Conn: from{ip: ip}, l: l, since: now.Add(-age)}, now) {
			out = append(out, c.RemoteAddr().String())
			l.unauthenticated.remove(c) // as Close does
		}
		return out
	}
	want := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("closed: %v, want %v", got, want)
		}
	}
	for i := range 4 {
		want(add(fmt.Sprint("10.0.0.", i), time.Minute))
	}
	for range 6 {
		want(add("10.0.1.1", time.Second))
	}
	want(add("10.0.0.9", 0), "10.0.1.1:1")
	for range 5 {
		want(add("10.0.1.1", 0), "10.0.1.1:1")
	}
	want(add("10.0.1.1", 0), "10.0.0.0:1") // all of the largest are new
	want(add("10.0.0.9", 0), "10.0.0.1:1")
	want(add("10.0.0.9", 0), "10.0.0.2:1")
	want(add("10.0.0.9", 0), "10.0.0.3:1")
	want(add("10.0.0.9", 0)) // all are within their grace
	if n := l.unauthenticated.all.Len(); n != 11 {
		t.Errorf("there are %d", n)
	}
	now = now.Add(time.Second)
	want(add("10.0.0.9", 0), "10.0.1.1:1", "10.0.1.1:1")
}
