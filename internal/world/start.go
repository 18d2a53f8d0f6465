package world

import (
	"context"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// StartServer starts a server, and returns when it serves requests. It begins with the cheap
// checks: the address, the lock of the data directory. If it fails, nothing of it remains.
func StartServer(ctx context.Context, c Config) (_ *Server, err error) {
	p := &process{Config: c, started: time.Now().UTC(), forkBudget: store.NewBudget(c.Forks.MaxTotalBytes)}
	s := &Server{process: p}
	p.ending, s.stopBackground = context.WithCancel(context.Background())
	s.forks = &forks{process: p, openings: make(slots, keptOpenings)}
	p.TLS.warn(p.logOf(logCertificates))
	p.url = "https://" + inProcessHost
	if !p.InProcess {
		if p.listeners, err = p.Listen.listen(ctx); err != nil {
			s.stopBackground()
			return nil, err
		}
		p.url, p.serverName = p.address(p.listeners[0])
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := p.openAudit(); err != nil {
		return nil, err
	}
	objects, err := p.openStore(ctx)
	if err != nil {
		return nil, err
	}
	w := &World{process: p, store: objects, kubernetes: p.Kubernetes}
	w.root, w.use, w.missing = w, func() error { return nil }, s.forks.missing
	w.seed, w.issued, w.clock, w.now = seed{number: p.Seed}, []*authn.Issued{{}}, p.Config.Clock, p.Now
	s.root, s.forks.root = w, w
	if err := p.openAuthority(objects, w.seed.source(forKeys)); err != nil {
		return nil, err
	}
	if err := p.openTokens(); err != nil {
		return nil, err
	}
	p.watchManifests()
	if err := p.openAuthentication(); err != nil {
		return nil, err
	}
	if err := p.openConnections(); err != nil {
		return nil, err
	}
	if err := s.openRoot(ctx); err != nil {
		return nil, err
	}
	s.forks.loadKept()
	s.control = &inprocess.Server{
		Handler: s.Control(), HeaderBytes: httpapi.DefaultLimits.HeaderBytes, WriteTimeout: httpapi.DefaultLimits.WriteTimeout, Log: p.logOf(logConnections),
	}
	s.followAuthority()
	if !p.InProcess {
		if err := s.serve(); err != nil {
			return nil, err
		}
	}
	if p.player != nil {
		s.background.Go(func() { p.player.run(p.ending) })
	}
	return s, nil
}

// serve serves the listeners.
func (s *Server) serve() error {
	p := s.process
	certificate, all, err := p.certificate(p.logOf(logCertificates))
	if err != nil {
		return err
	}
	p.certificates = all
	var refuse func() // nil: connections are refused
	if p.Shutdown.SendRetryAfter {
		refuse = s.root.handler.Refuse
	}
	s.serving = serving.New(serving.Config{
		Listeners: p.listeners, Handler: http.HandlerFunc(s.forks.route), Drain: s.root.handler.Drain, Refuse: refuse, GetCertificate: certificate,
		MinVersion: p.TLS.MinVersion, CipherSuites: p.TLS.CipherSuites,
		Limits:          connectionLimits(httpapi.DefaultLimits),
		Memory:          processMemory(debug.SetMemoryLimit(-1), os.ReadFile),
		HandshakeFailed: func() { s.handshakeErrors.Add(1) }, Log: p.logOf(logConnections),
	})
	s.serving.Start()
	return nil
}

// connectionLimits are the limits that the listener enforces.
func connectionLimits(l httpapi.Limits) serving.Limits {
	return serving.Limits{
		HeaderBytes: l.HeaderBytes, ReadHeaderTimeout: l.ReadHeaderTimeout, IdleTimeout: l.IdleTimeout,
		WriteTimeout: l.WriteTimeout, Streams: l.StreamsPerConn, UploadBytes: l.UploadBytesPerConn,
	}
}

// Leave makes the server unready for Shutdown.Delay, once. A server whose log has failed has nothing to wait for.
func (s *Server) Leave() {
	s.leaving.Do(func() {
		p := s.process
		p.logOf(logConnections).Info("the server will stop", "after", p.Shutdown.Delay)
		s.root.handler.Leave()
		timer := time.NewTimer(p.Shutdown.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.Failure.Done():
		}
	})
}

// Stop stops the parts in reverse order: requests first, so that none meets a closed store. Parts that
// do not exist yet are skipped.
func (s *Server) Stop() error {
	s.leases.Stop()
	if s.root != nil {
		s.root.endCalls()
	}
	s.forks.refuse()
	s.endRequests()
	s.process.closeIssuers()
	s.process.closeConnections()
	s.publisher.stop()
	err := errors.Join(s.forks.close(), s.process.closeAudit())
	if s.root != nil {
		s.root.replicas.close()
	}
	s.stopBackground()
	s.background.Wait()
	err = errors.Join(err, s.process.player.close())
	if s.root != nil {
		err = errors.Join(err, s.root.stop())
	}
	return err
}

// endRequests ends all requests, over connections and in the process, within a second.
func (s *Server) endRequests() {
	var direct sync.WaitGroup
	defer direct.Wait()
	if s.root != nil && s.root.direct != nil {
		direct.Go(s.root.direct.Stop)
	}
	if s.control != nil {
		direct.Go(s.control.Stop)
	}
	switch {
	case s.serving != nil:
		s.serving.Stop()
	default:
		closeAll(s.process.listeners)
	}
}
