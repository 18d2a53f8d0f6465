package tidemark

import (
	"context"
	"errors"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/world"
)

var errStarted = errors.New("tidemark: a Server starts once, and not after Close")

// Start starts the server, and returns when it serves requests. The context
// limits the start alone: the server runs until Close. A Server starts once. If
// Start fails, no goroutine, file lock or listener remains.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.started = true
	c, err := s.config()
	if err != nil {
		return err
	}
	r, err := world.StartServer(ctx, c)
	if err != nil {
		return err
	}
	s.running, s.root = r, &World{r, r.Root()}
	return nil
}

// Close stops the server: it accepts no more requests, ends watches cleanly, lets
// requests finish for a moment, syncs and closes the log, all within a second. On etcd it may take two seconds
// longer, to leave a copy of the objects for the next start. If an audit
// webhook does not respond, it waits up to five seconds longer for the last events to be sent. It
// is idempotent, and does nothing for a server that was not started. It returns the error
// of closing the log. With Shutdown.Delay, all this begins after the delay.
func (s *Server) Close() error {
	if r := s.get(); r != nil && s.Shutdown.Delay > 0 {
		r.Leave()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true // a closed server does not start any more
	if s.running != nil && !s.closed {
		s.closed = true
		s.endErr = s.running.Stop()
	}
	return s.endErr
}

// Done returns a channel that is closed when the server cannot continue because its
// log failed, or because it differs from the server that it follows; Err then returns the reason. Acknowledged writes are safe; others may
// be lost. The caller has to call Close. Close alone does not close the channel.
func (s *Server) Done() <-chan struct{} { return s.failure.Done() }

// Err returns why Done is closed, nil before.
func (s *Server) Err() error { return s.failure.Err() }

// URL returns the address of the server: "https://127.0.0.1:6443". With InProcess, it is a name that
// only the transports of the server know. It is empty before Start; while Start runs it waits for it.
func (s *Server) URL() string {
	if r := s.get(); r != nil {
		return r.URL()
	}
	return ""
}

// Root returns the world of the server's own storage. It panics before Start has succeeded.
func (s *Server) Root() *World {
	s.must()
	return s.root
}

// Fork returns the fork with the name. It opens a kept one that is not in use; the error may be that of its log.
// If there is none, the error is ErrNoFork. It panics before Start has succeeded.
func (s *Server) Fork(name string) (*World, error) {
	r := s.must()
	w, err := r.Find(name)
	if err != nil {
		return nil, err
	}
	return &World{r, w}, nil
}

// RESTConfig returns a configuration for client-go as administrator, a copy that the caller may
// change. With InProcess, it is World.InProcessConfig. It panics before Start has succeeded.
func (s *Server) RESTConfig() *rest.Config { return s.Root().RESTConfig() }

// RESTConfigFor returns a configuration for client-go as a user. It has a client certificate that is
// valid for a year. With InProcess, it is World.InProcessConfigFor. It panics before Start has
// succeeded.
func (s *Server) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	return s.Root().RESTConfigFor(user, groups...)
}

// Kubeconfig returns a kubeconfig file with the administrator's credentials. It panics before Start
// has succeeded. With InProcess, no client can use it.
func (s *Server) Kubeconfig() []byte { return s.Root().Kubeconfig() }

// WriteKubeconfig writes the administrator's kubeconfig to a file that only its owner can
// read. It returns an error if the file exists and was not written by tidemark. While the
// server runs, it writes the file again when its certificate authority is renewed, unless the
// file was removed. It panics before Start has succeeded.
func (s *Server) WriteKubeconfig(path string) error {
	r := s.must()
	if s.InProcess {
		return errors.New("tidemark: a server in process has no kubeconfig: no other process reaches it")
	}
	return r.WriteKubeconfig(path)
}

func (s *Server) get() *world.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

func (s *Server) must() *world.Server {
	r := s.get()
	if r == nil {
		panic("tidemark: the server has not started")
	}
	return r
}
