package world

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/issuers"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// process is the part that all worlds of a server share: the configuration, the keys, the
// authenticators, the audit log. It knows no world.
type process struct {
	Config
	started time.Time
	ending  context.Context // is done when the server ends

	endpoint
	// certificates returns the serving certificates; nil: InProcess.
	certificates func() []*tls.Certificate
	storage      storage.Opened     // zero: the objects are in memory
	identity     string             // among the servers on storage.Shared; empty: there are no others
	encrypted    *encryption.Active // of the root world
	forkBudget   *store.Budget
	player       *player  // nil: nothing is played
	hidden       sync.Map // with NoChanges: *resource.Catalog by *features.Profile

	authority      *pki.Authority
	keys           *satoken.Authority // of service account tokens; worlds use it with their objects
	authentication authentication
	issuers        *issuers.Issuers // nil: none are configured
	audit          *audit.Auditor   // nil: requests are not recorded
	aggregated     controller.Aggregated
	connections    *connect.Connector     // of clients to nodes
	collectors     []prometheus.Collector // of authentication and connections
}

// endpoint is where clients reach a server.
type endpoint struct {
	listeners []net.Listener // the first one is that of a TCP port; nil: InProcess
	url       string
	// serverName is the name against which clients check the certificate; empty: the host of url.
	serverName string
}

// authentication is the part of authentication that all worlds of a server share.
type authentication struct {
	base authn.Credentials // without tokens
	// first and last are the kinds of tokens before and after those that a world's objects determine.
	first, last []authn.Tokens
}

// clock returns the time of the server.
func (p *process) clock() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// keepsAuthority reports whether others may rely on the server's own certificate authority. One that shares
// its objects, and keeps no files, makes a new authority at each start.
func (p *process) keepsAuthority() bool { return p.storage.Shared == nil || p.pkiDir() != "" }

// pkiDir is the directory of keys; empty: they are not kept.
func (p *process) pkiDir() string {
	if p.storage.Dir == "" {
		return ""
	}
	return filepath.Join(p.storage.Dir, "pki")
}

// follows reports whether the server follows another one.
func (p *process) follows() bool { return p.storage.Followed != nil }

// makesFirst reports whether the server makes the objects that every server has. Otherwise the state stays as it was.
func (p *process) makesFirst() bool { return !p.past() && !p.ReadOnly && !p.follows() }

// controllers selects the controllers of worlds that do not select any themselves.
func (p *process) controllers() []string {
	switch {
	case p.Controllers == nil && p.past(), p.follows(), p.ReadOnly:
		return []string{"-*"}
	case p.storage.Shared == nil:
		return p.Controllers
	}
	all := slices.Clone(p.Controllers) // the events have leases
	if len(all) == 0 {
		all = []string{"*"}
	}
	return append(all, "-event-ttl")
}

// kinds returns the built-in kinds that are served, in a version of Kubernetes. It returns the same catalog each time.
func (p *process) kinds(of *features.Profile) *resource.Catalog {
	c := builtin.For(of)
	if !p.NoChanges {
		return c
	}
	hidden, _ := p.hidden.LoadOrStore(of, c.With([]resource.Group{{Name: changes.Group}}))
	return hidden.(*resource.Catalog)
}
