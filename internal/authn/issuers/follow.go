package issuers

import (
	"bytes"
	"context"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc"
)

const (
	// lookEvery is how often the follower looks whether the file is due for a check.
	lookEvery = 250 * time.Millisecond
	// readyTimeout is how long a changed configuration may wait for its issuers, before its
	// reload counts as failed.
	readyTimeout = time.Minute
)

// follower replaces the configuration when the file has changed. Only its goroutine uses it.
//
// A valid configuration takes effect once all its issuers are discovered. Until then the
// old one stays in use. If that takes too long, the reload has failed and is tried again.
type follower struct {
	of      *Issuers
	read    func() []byte
	tracked []byte   // of the file, when it was used last
	pending *pending // nil: the file is in use, or invalid
}

// pending is a valid configuration that waits for its issuers.
type pending struct {
	jwt      []apiserver.JWTAuthenticator
	rules    []*oidc.Rules
	set      *set
	deadline time.Time
}

func (f *follower) run(ctx context.Context) {
	defer close(f.of.ended)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.drop()
			return
		case <-tick.C:
			f.step()
		}
	}
}

// step reads the file, and then checks the pending configuration.
func (f *follower) step() {
	if b := f.read(); !bytes.Equal(b, f.tracked) {
		f.drop()
		f.tracked = b
		f.load(b)
	}
	p := f.pending
	if p == nil {
		return
	}
	switch err := p.set.health(); {
	case err == nil:
		f.use()
	case time.Now().After(p.deadline):
		f.failed(err)
		f.drop()
		f.begin(p)
	}
}

// load makes the configuration of the file pending, if it is valid.
func (f *follower) load(b []byte) {
	c, err := parse(b)
	if err != nil {
		f.failed(err)
		return
	}
	rules, wrong := compile(c, f.of.c.Disallowed)
	if err := append(wrong, unchanged(f.of.anonymous, c.Anonymous)...).ToAggregate(); err != nil {
		f.failed(err)
		return
	}
	f.begin(&pending{jwt: c.JWT, rules: rules})
}

// begin discovers the issuers of a configuration.
func (f *follower) begin(p *pending) {
	s, err := newSet(&f.of.c, f.of.metrics, p.jwt, p.rules)
	if err != nil {
		f.failed(err)
		return
	}
	f.pending = &pending{jwt: p.jwt, rules: p.rules, set: s, deadline: time.Now().Add(readyTimeout)}
}

// use replaces the configuration by the pending one.
func (f *follower) use() {
	old := f.of.current.Swap(f.pending.set)
	f.pending = nil
	old.close()
	for url := range old.issuers {
		if f.of.current.Load().issuers[url] == nil {
			f.of.metrics.removed(url)
		}
	}
	f.of.metrics.reloaded(f.tracked)
	f.of.c.Log.Info("the authentication configuration has been reloaded", "file", f.of.c.File)
}

func (f *follower) drop() {
	if f.pending != nil {
		f.pending.set.close()
		f.pending = nil
	}
}

func (f *follower) failed(err error) {
	f.of.metrics.reloadFailed()
	f.of.c.Log.Error("the authentication configuration in use stays in use: a changed file cannot be used", "file", f.of.c.File, "err", err)
}

// read reads the file for reload.Value. The first call is that of Open.
func (i *Issuers) read() ([]byte, error) {
	b, err := readFile(i.c.File)
	if err != nil && i.current.Load() != nil {
		i.metrics.reloadFailed()
		i.c.Log.Error("the authentication configuration in use stays in use: the file cannot be read", "file", i.c.File, "err", err)
	}
	return b, err
}
