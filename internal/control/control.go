// Package control serves the control API, for operations of a test harness that the Kubernetes API
// does not have. It creates and deletes worlds, applies manifests, adds users, and reads whole
// states and histories. docs/formats/control-api.md has the requests and responses.
//
// The package uses worlds by the interfaces [Worlds] and [World] only. It does not authenticate:
// the socket of the listener does, or [RequireToken].
package control

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fault"
)

// Root is the name of the world that a server begins with. It cannot be deleted.
const Root = "root"

// Errors of Worlds and World. The handler responds to them with 404, 409, 400, 403, 410 and 507.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("exists already")
	ErrInvalid   = errors.New("invalid")
	ErrForbidden = errors.New("not allowed")
	ErrExpired   = errors.New("no longer available")
	ErrLimit     = errors.New("limit reached")
)

// Worlds are the worlds of one server. All methods are safe for concurrent use.
type Worlds interface {
	// Names returns the names of all worlds, the root first, the others in the order of their names.
	Names() []string
	// Find returns a world, or an error that wraps ErrNotFound.
	Find(name string) (World, error)
	// Create creates a world and returns when it responds to requests. An error wraps ErrNotFound if there
	// is no such parent, ErrExists, ErrInvalid or ErrLimit.
	Create(ctx context.Context, o Options) (World, error)
	// Delete ends a world: its requests, its watches, its memory. An error wraps ErrNotFound, or
	// ErrForbidden for the root.
	Delete(name string) error
}

// Options are the initial state of a world.
type Options struct {
	// Name is a DNS label; empty: the server chooses one.
	Name string
	// Parent is the world to fork. It is never empty.
	Parent string
	// Revision is the revision of the parent to begin with; zero: the newest. The error for one that
	// the parent no longer has wraps ErrExpired, for one in the future ErrNotFound.
	Revision uint64
	// Since is the revision of the parent that the history of the world reaches back to, at most Revision; zero:
	// Revision. The errors are those of Revision, and ErrLimit for a history that is too large.
	Since uint64
	// Controllers selects the controllers, as tidemark.Server.Controllers does. Nil: those of the server.
	Controllers []string
	// Seed selects UIDs and generated names, as tidemark.ForkOptions.Seed does. Zero: that of the parent.
	Seed uint64
	// KubernetesVersion is the minor version of Kubernetes of the world, such as "1.36". Empty: that of the parent. The
	// error for an unknown one wraps ErrInvalid.
	KubernetesVersion string
}

// World is one world: a state with an API. All methods are safe for concurrent use.
type World interface {
	// Describe returns how clients reach the world.
	Describe() (Description, error)
	// Handler serves the API of the world, without faults. It authenticates requests.
	Handler() http.Handler
	// AddUser makes credentials for a user. The token is valid in the world and in its forks, the
	// certificate in all worlds of the server.
	AddUser(u User) (Credentials, error)
	// Objects yields all objects at a revision, ordered by collection and key. Zero: the newest
	// revision. An error ends the sequence; ErrExpired: the history does not reach back to it.
	Objects(ctx context.Context, revision uint64) iter.Seq2[Object, error]
	// Changes yields the changes with after < revision <= upTo, in their order. upTo zero: the newest
	// revision at the call. An error ends the sequence; ErrExpired: the history does not reach back.
	Changes(ctx context.Context, after, upTo uint64) iter.Seq2[Change, error]
	// AddFault lets requests fail as the rule says. Errors are those of fault.Set.
	AddFault(r fault.Rule) (fault.State, error)
	// Faults returns all faults, in the order in which they were added.
	Faults() []fault.State
	// RemoveFault removes a fault; the error wraps fault.ErrNotFound.
	RemoveFault(id string) error
	// ClearFaults removes all faults.
	ClearFaults()
	// RecordRequests records the requests for resources from now on, and forgets those recorded before.
	RecordRequests()
	// RecordedRequests returns the first fault.MaxRecorded of them, and how many more there were.
	RecordedRequests() (all []fault.Request, missed uint64)
	// Watches returns the watches that clients have open, in no order.
	Watches() ([]fault.Request, error)
	// AddReplica makes a replica of the world. An error wraps ErrExists, ErrLimit, or for o.At ErrExpired or
	// ErrNotFound.
	AddReplica(o ReplicaOptions) (Replica, error)
	// Now is the time of the world's clock.
	Now() time.Time
	// Advance moves the clock of the world ahead, and returns its time. The error wraps ErrForbidden if the world has
	// no clock of its own, and ErrInvalid if it would move too far.
	Advance(d time.Duration) (time.Time, error)
	// Replicas returns the replicas in the order of their names.
	Replicas() []Replica
	// SettleFor waits until nothing is left to do, no write has come for the duration of quiet, and nothing is
	// left to do still. Quiet zero: it returns when nothing is left to do.
	SettleFor(ctx context.Context, quiet time.Duration) (Settled, error)
}

// Settled is the state of a world that has settled.
type Settled struct {
	Revision uint64 `json:"revision"`
	// Requests is the number of requests that the world has begun to serve.
	Requests uint64 `json:"requests"`
}

// Description is how clients reach a world.
type Description struct {
	Name string `json:"name"`
	// Parent is the world that this one was forked from; empty: the root.
	Parent string `json:"parent,omitempty"`
	// Revision is the newest revision.
	Revision uint64 `json:"revision"`
	// Seed selects UIDs and generated names; zero: they are unpredictable.
	Seed uint64 `json:"seed,omitempty"`
	// URL is the address of the API.
	URL string `json:"url"`
	// ServerName is the name to check the server's certificate against; empty: the host of URL.
	ServerName string `json:"serverName,omitempty"`
	// CA is the certificate to trust, as PEM.
	CA string `json:"ca"`
	// Token is the administrator's bearer token. That of a fork that is not kept is valid in it and in its forks alone.
	Token string `json:"token"`
	// Kubeconfig is a kubeconfig file of the administrator.
	Kubeconfig string `json:"kubeconfig"`
}

// User is a user of a world.
type User struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups,omitempty"`
}

// Credentials authenticate a user in two ways: with a bearer token, and with a client certificate.
type Credentials struct {
	User
	Token string `json:"token"`
	// Certificate and Key are PEM.
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	// Kubeconfig is a kubeconfig file with the token.
	Kubeconfig string `json:"kubeconfig"`
}

// Object is a stored object.
type Object struct {
	Collection, Key string
	JSON            []byte
}

// Change is one change of one object.
type Change struct {
	Revision        uint64
	Collection, Key string
	// Before is nil if the change created the object, After if it deleted it. Both are JSON.
	Before, After []byte

	// Time is when the change was made; zero: the log does not know.
	Time time.Time
	// Verb is the verb of the request; empty: the log does not know.
	Verb string
	// Actor is who made the change; nil: the log does not know.
	Actor *Actor
}

// Actor is who made a change.
type Actor struct {
	User         string `json:"user,omitempty"`
	UserAgent    string `json:"userAgent,omitempty"`
	FieldManager string `json:"fieldManager,omitempty"`
	Subresource  string `json:"subresource,omitempty"`
	// Loop is the part of the server that made the change without a request; empty: a client made it.
	Loop string `json:"loop,omitempty"`
	// Impersonator is the user who impersonated User. Empty: User sent the request.
	Impersonator string `json:"impersonator,omitempty"`
	AuditID      string `json:"auditID,omitempty"`
}

// Config configures a handler.
type Config struct {
	Worlds Worlds
	// Version is the version of the server.
	Version string
	// Leases counts the clients that need the server.
	Leases *Leases
}

// Limits of requests.
const (
	// maxBodyBytes limits the bodies of all requests but those with manifests.
	maxBodyBytes = 1 << 20
	// maxManifestBytes limits the manifests of one request, with everything around them.
	maxManifestBytes = 64 << 20
	// maxManifests limits the objects of one request.
	maxManifests = 20_000
)

// handler serves the control API.
type handler struct {
	Config
}

// New returns the handler of the control API.
func New(c Config) http.Handler {
	h := &handler{c}
	mux := http.NewServeMux()
	// parameters are those that the query may have.
	route := func(pattern string, f func(http.ResponseWriter, *http.Request) error, parameters ...string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := checkQuery(r, parameters)
			if err == nil {
				err = f(w, r)
			}
			if err != nil {
				writeError(w, err)
			}
		})
	}
	route("GET /control/v1", h.server)
	route("GET /control/v1/worlds", h.list)
	route("POST /control/v1/worlds", h.create)
	route("GET /control/v1/worlds/{world}", h.get)
	route("DELETE /control/v1/worlds/{world}", h.delete)
	route("POST /control/v1/worlds/{world}/apply", h.apply)
	route("POST /control/v1/worlds/{world}/users", h.addUser)
	route("GET /control/v1/worlds/{world}/state", h.state, "revision", "format")
	route("GET /control/v1/worlds/{world}/history", h.history, "after", "upTo")
	route("GET /control/v1/worlds/{world}/resources", h.resources)
	route("GET /control/v1/worlds/{world}/faults", h.faults)
	route("POST /control/v1/worlds/{world}/faults", h.addFault)
	route("DELETE /control/v1/worlds/{world}/faults", h.clearFaults)
	route("DELETE /control/v1/worlds/{world}/faults/{fault}", h.removeFault)
	route("POST /control/v1/worlds/{world}/requests", h.record)
	route("GET /control/v1/worlds/{world}/requests", h.recorded)
	route("GET /control/v1/worlds/{world}/watches", h.watches)
	route("GET /control/v1/worlds/{world}/replicas", h.replicas)
	route("POST /control/v1/worlds/{world}/replicas", h.addReplica)
	route("GET /control/v1/worlds/{world}/replicas/{replica}", h.getReplica)
	route("DELETE /control/v1/worlds/{world}/replicas/{replica}", h.deleteReplica)
	route("POST /control/v1/worlds/{world}/replicas/{replica}/advance", h.advanceReplica)
	route("POST /control/v1/worlds/{world}/replicas/{replica}/catchup", h.catchUpReplica)
	route("POST /control/v1/worlds/{world}/settle", h.settle)
	route("GET /control/v1/worlds/{world}/clock", h.clock)
	route("POST /control/v1/worlds/{world}/clock/advance", h.advanceClock)
	route("POST /control/v1/certificates", h.certify)
	route("POST /control/v1/leases", h.lease)
	return withStatus(mux)
}
