package serving

import (
	"net"
	"testing"
	"time"
)

// from is a connection from an address.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

// TestCrowd: who makes room.
func TestCrowd(t *testing.T) {
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
		"nobody":        {out: "", again: patience},
		"known ones":    {open: []open{{"a", "10.0.0.1", time.Hour, known}}, again: patience},
		"a mute one":    {open: []open{{"a", "10.0.0.1", haste, mute}}, out: "a"},
		"too early":     {open: []open{{"a", "10.0.0.1", haste - 1, mute}}, again: 1},
		"in handshake":  {open: []open{{"a", "10.0.0.1", patience - 1, silent}}, again: 1},
		"a stranger":    {open: []open{{"a", "10.0.0.1", patience, stranger}}, out: "a"},
		"one is known":  {open: []open{{"a", "10.0.0.1", time.Hour, known}, {"b", "10.0.0.1", time.Minute, stranger}}, out: "b"},
		"the oldest":    {open: []open{{"a", "10.0.0.1", time.Hour, silent}, {"b", "10.0.0.1", time.Minute, silent}}, out: "a"},
		"the most mute": {open: []open{{"a", "10.0.0.1", time.Hour, stranger}, {"b", "10.0.0.1", time.Hour, silent}, {"c", "10.0.0.1", time.Minute, mute}}, out: "c"},
		"the address with the most": {open: []open{
			{"a", "10.0.0.1", time.Hour, mute}, {"b", "10.0.0.2", time.Minute, stranger}, {"c", "10.0.0.2", time.Minute, stranger},
		}, out: "b"},
		"among equals those who came to less": {open: []open{
			{"a", "10.0.0.1", time.Hour, stranger}, {"b", "10.0.0.2", time.Minute, silent},
		}, out: "b"},
		"a network of IPv6": {open: []open{
			{"a", "10.0.0.1", time.Hour, mute}, {"b", "2001:db8::1", time.Minute, mute}, {"c", "2001:db8::2", time.Minute, mute},
		}, out: "b"},
		"IPv4 in IPv6": {open: []open{
			{"a", "10.0.0.1", time.Hour, mute}, {"b", "10.0.0.2", time.Minute, mute}, {"c", "::ffff:10.0.0.2", time.Minute, mute},
		}, out: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			l := newListener(nil, 1000, 0)
			names := map[*connection]string{}
			for _, o := range test.open {
				c := &connection{Conn: from{ip: o.ip}, l: l, since: now.Add(-o.age)}
				names[c] = o.name
				if l.crowd.add(c, now) != nil {
					t.Errorf("%s pushed one out", o.name)
				}
				for stage := mute + 1; int32(stage) <= o.stage; stage++ {
					c.advance(int32(stage))
				}
			}
			out, again := l.crowd.worst(now)
			if names[out] != test.out || again != test.again {
				t.Errorf("%q makes room, or look again in %v; want %q, %v", names[out], again, test.out, test.again)
			}
			for c := range names {
				l.crowd.remove(c)
				l.crowd.remove(c)
			}
			if len(l.crowd.peers) != 0 || len(l.crowd.order) != 0 {
				t.Error("something is left")
			}
		})
	}
}

// TestShare: an address that has more than its share pushes out its own connections, and
// only those that had their time.
func TestShare(t *testing.T) {
	now := time.Now()
	l := newListener(nil, 200, 0)
	add := func(ip string, age time.Duration) *connection {
		return l.crowd.add(&connection{Conn: from{ip: ip}, l: l, since: now.Add(-age)}, now)
	}
	for range 100 {
		if add("10.0.0.1", time.Minute) != nil {
			t.Fatal("below the share")
		}
	}
	out := add("10.0.0.1", 0)
	if out == nil || out.RemoteAddr().String() != "10.0.0.1:1" {
		t.Fatalf("%v makes room", out)
	}
	if add("10.0.0.2", 0) != nil {
		t.Error("another address pays for it")
	}
	for range 150 {
		if add("10.0.0.3", 0) != nil {
			t.Error("one that has just come has to go")
		}
	}
	for places, want := range map[int]time.Duration{1: haste, 16: 16 * time.Second / 70, 1000: patience} {
		if got := newListener(nil, places, 0).crowd.patience[silent]; got != want {
			t.Errorf("with %d places: %v, want %v", places, got, want)
		}
	}
}
