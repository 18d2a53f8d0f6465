package config

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/utils/set"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/reload"
)

// Source is a valid configuration, before its authorizers exist.
type Source struct {
	path string // of the file; empty: flags
	data []byte // of the file
	c    *apiserver.AuthorizationConfiguration
}

// FromFile reads an AuthorizationConfiguration.
func FromFile(path string) (*Source, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data, nil)
	if err != nil {
		return nil, err
	}
	return &Source{path: path, data: data, c: c}, nil
}

// FromFlags returns the configuration by flags.
func FromFlags(f Flags) (*Source, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	return &Source{c: f.configuration()}, nil
}

// Uses reports whether a mode is configured.
func (s *Source) Uses(mode string) bool { return types(s.c).Has(mode) }

// types are the modes of a configuration.
func types(c *apiserver.AuthorizationConfiguration) set.Set[string] {
	all := set.New[string]()
	for _, a := range c.Authorizers {
		all.Insert(string(a.Type))
	}
	return all
}

// Authorizer is the authorizer of a server. It is safe for concurrent use.
type Authorizer struct {
	metrics *metrics
	fixed   *chain                // nil: file is used
	file    *reload.Value[*chain] // nil: fixed is used
}

// Start makes the authorizers of a configuration. A file is checked for changes about once a
// second, when a request needs a decision. One that is invalid changes nothing; it has to keep the
// types of the first one, besides webhooks.
func (s *Source) Start(p Parts, log *slog.Logger) (*Authorizer, error) {
	m := newMetrics()
	first, err := build(s.c, &p, m)
	if err != nil {
		return nil, err
	}
	a := &Authorizer{metrics: m, fixed: first}
	if s.path == "" {
		return a, nil
	}
	required := types(s.c)
	required.Delete(ModeWebhook)
	m.uses(s.data)
	l := &loaded{path: s.path, parts: p, metrics: m, required: required, data: s.data, config: s.c, chain: first}
	a.file, err = reload.New(reload.Config[*chain]{Files: []string{s.path}, Load: l.load, Now: p.Now, Log: log})
	if err != nil {
		first.close()
		return nil, err
	}
	a.fixed = nil
	return a, nil
}

// loaded is the result of the last load. reload.Value calls load from one goroutine at a time.
type loaded struct {
	path     string
	parts    Parts
	metrics  *metrics
	required set.Set[string]

	data   []byte
	err    error // of data
	config *apiserver.AuthorizationConfiguration
	chain  *chain
}

// load returns the authorizers of the file. As long as it means the same, they are the same, with
// their caches.
func (l *loaded) load() (*chain, error) {
	data, err := read(l.path)
	if err != nil {
		l.metrics.reloaded(false)
		return nil, err
	}
	if bytes.Equal(data, l.data) {
		return l.chain, l.err
	}
	l.data = data
	if l.err = l.use(data); l.err != nil {
		l.metrics.reloaded(false)
		return nil, l.err
	}
	return l.chain, nil
}

// use replaces the authorizers by those of a new file.
func (l *loaded) use(data []byte) error {
	c, err := Parse(data, l.required)
	if err != nil || reflect.DeepEqual(c, l.config) {
		return err
	}
	next, err := build(c, &l.parts, l.metrics)
	if err != nil {
		return err
	}
	l.chain.close()
	l.config, l.chain = c, next
	l.metrics.reloaded(true)
	l.metrics.uses(data)
	return nil
}

func (a *Authorizer) current() *chain {
	if a.file != nil {
		return a.file.Get()
	}
	return a.fixed
}

// Authorize implements authz.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, what *authz.Attributes) (authz.Decision, string, error) {
	return a.current().Authorize(ctx, what)
}

// Rules implements authz.Ruler.
func (a *Authorizer) Rules(ctx context.Context, u *authn.User, namespace string) authz.Rules {
	return a.current().Rules(ctx, u, namespace)
}

// Collectors returns the collectors of the metrics of authorization.
func (a *Authorizer) Collectors() []prometheus.Collector { return a.metrics.collectors() }

// Close closes the connections of webhooks. No request may use the authorizer any more.
func (a *Authorizer) Close() { a.current().close() }
