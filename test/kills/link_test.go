package kills

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// link forwards connections to an address. It can refuse them, and hold back responses.
type link struct {
	listener net.Listener
	to       string
	raft     bool // connections begin with a request that names the member that sends it

	mu    sync.Mutex
	cut   bool
	off   map[string]bool // members that are cut off, by ID
	mute  bool            // requests pass, and responses wait
	conns map[net.Conn]string
}

// newLink returns a link to a free address.
func newLink(t testing.TB, to string, raft bool) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, raft: raft, off: map[string]bool{}, conns: map[net.Conn]string{}}
	go l.run()
	t.Cleanup(func() {
		l.set(func() { l.cut = true })
		listener.Close()
	})
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) run() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.forward(in)
	}
}

func (l *link) forward(in net.Conn) {
	defer in.Close()
	var head []byte
	from := ""
	if l.raft {
		if head, from = sender(in); head == nil {
			return
		}
	}
	out, err := net.DialTimeout("tcp", l.to, 5*time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	if !l.add(from, in, out) {
		return
	}
	defer l.remove(in, out)
	if _, err := out.Write(head); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(out, in, false) })
	both.Go(func() { l.copy(in, out, true) })
	both.Wait()
}

// sender reads the head of the first request, and returns it with the ID of the member that sent it.
func sender(in net.Conn) (head []byte, id string) {
	buf := make([]byte, 4<<10)
	for len(head) < 16<<10 && !bytes.Contains(head, []byte("\r\n\r\n")) {
		n, err := in.Read(buf)
		if err != nil {
			return nil, ""
		}
		head = append(head, buf[:n]...)
	}
	_, rest, _ := bytes.Cut(head, []byte("\r\nX-Server-From: "))
	value, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return head, string(value)
}

// add registers connections, unless the sender is cut off.
func (l *link) add(from string, conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.off[from] {
		return false
	}
	for _, c := range conns {
		l.conns[c] = from
	}
	return true
}

func (l *link) remove(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.conns, c)
	}
}

// set changes which connections pass, and closes those that no longer do.
func (l *link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	for c, from := range l.conns {
		if l.cut || l.off[from] {
			c.Close()
		}
	}
}

// waits reports whether responses are held back.
func (l *link) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mute && !l.cut
}

func (l *link) copy(to, from net.Conn, responses bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for responses && l.waits() {
			time.Sleep(5 * time.Millisecond)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
