package tidemarktest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// session is a connection to a server, for all worlds of a process.
type session struct {
	control control
	lease   string // that the worlds end with; empty: none
	program string // of the server; empty: it is not known
}

// shared is the session with the process that the tests share. It lasts until this process ends.
var shared = sync.OnceValues(openShared)

// openSession returns a session with a host, which may be nil.
func openSession(h Host) (*session, error) {
	if h != nil {
		return &session{control: control{h}}, nil
	}
	if time.Now().Year() == 2000 { // in a bubble, waiting for a socket stops the time
		return nil, errors.New("a bubble of testing/synctest reaches no process: set World.Host to a server that was started in the bubble, with InProcess")
	}
	return shared()
}

// attach takes a lease of the server with a control socket. The lease ends when this process does.
func attach(ctx context.Context, socket string) (*session, error) {
	s := &session{control: control{socketHost{socket}}}
	// The context must not end the request: the lease would end with it.
	body, err := s.control.open(context.WithoutCancel(ctx), "POST", "leases", nil)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(body).ReadBytes('\n')
	var lease struct{ Lease string }
	if err == nil {
		err = json.Unmarshal(line, &lease)
	}
	if err != nil {
		body.Close()
		return nil, err
	}
	s.lease = lease.Lease
	leases.Lock()
	defer leases.Unlock()
	leases.open = append(leases.open, body.Close)
	return s, nil
}

// leases holds the open responses, which would be closed if they were collected.
var leases struct {
	sync.Mutex
	open []func() error
}
