package tidemarktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Env is a cluster of one test, seen by one user: the administrator, or the one of As. The methods are
// safe for concurrent use.
type Env struct {
	session    *session
	world      worldInfo
	token      string
	kubeconfig string // with the address of the world
	webhook    *WebhookServer
	users      map[string]*Env // of World.Users, by name; not changed after Open
	via        *replicaInfo    // where the API is; nil: at the address of the world

	owner     *Env // whose Close ends the world; nil: this one
	closeOnce sync.Once
	closeErr  error
	t         TB       // of Fork; nil: the Env is that of Open, or a copy of a search
	closing   struct { // of the owner
		sync.Mutex
		begun bool
		calls []func() // of OnClose
	}

	controllers []string      // World.Controllers
	seed        uint64        // World.Seed
	settled     atomic.Uint64 // the revision at the last Settle

	dumpOnce sync.Once
	dumpedTo string // the directory of the dump, after dumpOnce
}

// callTimeout limits requests to the control API.
const callTimeout = 30 * time.Second

func callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

// call calls a function with the time limit of a request to the control API. An error fails the test.
func call(t TB, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
}

// Name is the name of the world in the control API.
func (e *Env) Name() string { return e.world.Name }

// URL is the address of the Kubernetes API: "https://127.0.0.1:41234".
func (e *Env) URL() string {
	if e.via != nil {
		return e.via.URL
	}
	return e.world.URL
}

// CAData is the certificate to trust, as PEM.
func (e *Env) CAData() []byte { return []byte(e.world.CA) }

// ServerName is the name to check the server's certificate against; empty: the host of the URL.
func (e *Env) ServerName() string { return e.world.ServerName }

// Token is the user's bearer token.
func (e *Env) Token() string { return e.token }

// Host is the server of the cluster: that of World.Host, or the process that the tests share.
func (e *Env) Host() Host { return e.session.control.host }

// KubeconfigData is a kubeconfig file of the user.
func (e *Env) KubeconfigData() []byte {
	return []byte(strings.ReplaceAll(e.kubeconfig, e.world.URL, e.URL()))
}

// Kubeconfig writes a kubeconfig of the user to a temporary file of the test, and returns its path.
func (e *Env) Kubeconfig(t TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, e.KubeconfigData(), 0o600); err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	return path
}

// As returns the same cluster, seen by a user. The user has the rights that roles and bindings give.
// Without groups, a user of World.Users has the groups that are given there. If the server cannot add the user, the test of
// Fork fails; without one, as in a search, As panics.
func (e *Env) As(name string, groups ...string) *Env {
	if user := e.users[name]; user != nil && len(groups) == 0 {
		return user
	}
	user, err := e.AddUser(User{Name: name, Groups: groups})
	if err != nil {
		text := fmt.Sprintf("tidemarktest: As(%q): %v", name, err)
		if t := e.root().t; t != nil {
			t.Helper()
			t.Fatalf("%s", text)
			return e
		}
		panic(text)
	}
	return user
}

// AddUser is As with an error.
func (e *Env) AddUser(u User) (*Env, error) {
	ctx, cancel := callContext()
	defer cancel()
	return e.addUser(ctx, u)
}

func (e *Env) addUser(ctx context.Context, u User) (*Env, error) {
	body := struct {
		Name   string   `json:"name"`
		Groups []string `json:"groups,omitempty"`
	}(u)
	var c credentials
	if err := e.session.control.call(ctx, "POST", worldPath(e.world.Name, "users"), body, &c); err != nil {
		return nil, err
	}
	return e.seenBy(c.Token, c.Kubeconfig), nil
}

// seenBy returns the same cluster, seen by the user of a token.
func (e *Env) seenBy(token, kubeconfig string) *Env {
	return &Env{
		session: e.session, world: e.world, via: e.via, token: token, kubeconfig: kubeconfig, webhook: e.webhook, users: e.users,
		owner: e.root(), controllers: e.controllers, seed: e.seed,
	}
}

// Apply applies the objects of manifests, YAML documents or JSON, as kubectl apply --server-side --force-conflicts does.
// Fields and finalizers that others have set stay. What an earlier Apply has set and the manifest lacks goes. The status
// is applied in the same way. The user of the Env writes, and needs the rights: patch, and create for new objects. Webhook configurations and definitions are replaced. The verb in the history is "apply",
// also of a creation.
func (e *Env) Apply(t TB, manifests ...string) {
	t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	var all []manifest
	for i, text := range manifests {
		if !strings.ContainsAny(text, "\n:") && isManifest(text) {
			t.Fatalf("tidemarktest: Apply(%q): want the text of a manifest, not the path of its file", text)
			return
		}
		all = append(all, manifest{Name: fmt.Sprintf("manifest %d", i+1), Content: text})
	}
	if _, err := e.apply(ctx, all, e.webhook); err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
}

// apply returns the objects that the manifests have.
func (e *Env) apply(ctx context.Context, manifests []manifest, webhook *WebhookServer) ([]applied, error) {
	body := applyRequest{Manifests: manifests, Token: e.token}
	if webhook != nil {
		body.Webhooks = &webhookTarget{URL: webhook.URL(), CABundle: string(webhook.CAData)}
	}
	var response struct{ Applied []applied }
	err := e.session.control.call(ctx, "POST", worldPath(e.world.Name, "apply"), body, &response)
	return response.Applied, err
}

// Cluster returns the Env that this one comes from: the cluster at its own address, seen by the administrator. For an Env that
// is neither of As nor of a Replica, that is the Env itself.
func (e *Env) Cluster() *Env { return e.root() }

// Webhooks is the address and the certificate that the webhooks under test must serve with; nil if
// World.Webhooks is empty.
func (e *Env) Webhooks() *WebhookServer { return e.webhook }

// OnClose calls a function when the cluster is about to be deleted, the last one first. Without a cluster, it calls
// the function at once. For an Env of As or of a Replica, the cluster is that of the Env it comes from.
func (e *Env) OnClose(f func()) {
	c := &e.root().closing
	c.Lock()
	begun := c.begun
	if !begun {
		c.calls = append(c.calls, f)
	}
	c.Unlock()
	if begun {
		f()
	}
}

// callOnClose calls the functions of OnClose.
func (e *Env) callOnClose() {
	e.closing.Lock()
	e.closing.begun = true
	calls := e.closing.calls
	e.closing.Unlock()
	for _, f := range slices.Backward(calls) {
		f()
	}
}

// Close deletes the cluster. It is idempotent. For an Env of As or of a Replica it does nothing.
func (e *Env) Close() error {
	if e.owner != nil {
		return nil
	}
	e.closeOnce.Do(func() {
		ctx, cancel := callContext()
		defer cancel()
		e.callOnClose()
		e.closeErr = errors.Join(e.webhook.close(), e.session.control.call(ctx, "DELETE", worldPath(e.world.Name), nil, nil))
	})
	return e.closeErr
}
