package etcdlog_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// guarded is a cluster with authentication: the common name of a client certificate is a user of etcd.
type guarded struct {
	*cluster
	dir  string // has ca.crt, and certificates and keys for each user
	root *clientv3.Client
}

// The users of a guarded cluster besides root. All have certificates.
const (
	limited  = "limited"  // has the role limited: readwrite on /registry/ and on compact_rev_key
	objects  = "objects"  // has the role objects: readwrite on /registry/
	noRole   = "norole"   // has no role
	stranger = "stranger" // is no user of etcd
)

// startGuarded starts a cluster with authentication. Change may change the configuration of members; nil: it does not.
func startGuarded(t *testing.T, members int, change func(*embed.Config)) *guarded {
	t.Helper()
	dir := files(t, "etcd", "root", limited, objects, noRole, stranger)
	g := &guarded{dir: dir}
	g.cluster = startCluster(t, members, func(o *embed.Config) {
		o.ListenClientUrls[0].Scheme, o.AdvertiseClientUrls[0].Scheme = "https", "https"
		o.ClientTLSInfo = transport.TLSInfo{CertFile: dir + "/etcd.crt", KeyFile: dir + "/etcd.key", TrustedCAFile: dir + "/ca.crt", ClientCertAuth: true}
		if change != nil {
			change(o)
		}
	})
	pem, err := os.ReadFile(dir + "/ca.crt")
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(dir+"/root.crt", dir+"/root.key")
	must(t, err)
	g.root, err = clientv3.New(clientv3.Config{Endpoints: g.servers(), TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}})
	must(t, err)
	t.Cleanup(func() { must(t, g.root.Close()) })
	for _, user := range []string{"root", limited, objects, noRole} {
		g.addUser(t, user)
	}
	for _, role := range []string{"root", limited, objects} {
		_, err := g.root.RoleAdd(t.Context(), role)
		must(t, err)
		_, err = g.root.UserGrantRole(t.Context(), role, role)
		must(t, err)
	}
	for _, role := range []string{limited, objects} {
		_, err := g.root.RoleGrantPermission(t.Context(), role, "/registry/", "/registry0", clientv3.PermissionType(clientv3.PermReadWrite))
		must(t, err)
	}
	_, err = g.root.RoleGrantPermission(t.Context(), limited, "compact_rev_key", "", clientv3.PermissionType(clientv3.PermReadWrite))
	must(t, err)
	_, err = g.root.AuthEnable(t.Context())
	must(t, err)
	return g
}

func (g *guarded) addUser(t testing.TB, name string) {
	t.Helper()
	_, err := g.root.UserAddWithOptions(t.Context(), name, "", &clientv3.UserAddOptions{NoPassword: true})
	must(t, err)
}

// servers are the URLs of all members.
func (g *guarded) servers() []string {
	all := g.cluster.servers()
	for i := range all {
		all[i] = strings.Replace(all[i], "http:", "https:", 1)
	}
	return all
}

// open opens a log as a user.
func (g *guarded) open(t testing.TB, user string, change func(*etcdlog.Options)) *etcdlog.Log {
	t.Helper()
	return open(t, g.cluster, func(o *etcdlog.Options) {
		o.Servers = g.servers()
		o.CAFile, o.CertFile, o.KeyFile = g.dir+"/ca.crt", g.dir+"/"+user+".crt", g.dir+"/"+user+".key"
		if change != nil {
			change(o)
		}
	})
}

// store returns the storage of a server as a user.
func (g *guarded) store(user string, log *logged) *etcdstore.Cluster {
	return &etcdstore.Cluster{Servers: g.servers(), CAFile: g.dir + "/ca.crt", CertFile: g.dir + "/" + user + ".crt", KeyFile: g.dir + "/" + user + ".key",
		CompactionInterval: -1, UsageInterval: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))}
}

// put writes a key that does not belong to the log.
func (g *guarded) put(t testing.TB, key string) store.Revision {
	t.Helper()
	response, err := g.root.Put(t.Context(), key, "x")
	must(t, err)
	return store.Revision(response.Header.Revision)
}

// TestAuth: a log whose user may access the prefix alone does all that a log does.
func TestAuth(t *testing.T) {
	tier.Full(t)
	for _, user := range []string{"root", limited, objects} {
		t.Run(user, func(t *testing.T) { testAuth(t, startGuarded(t, 1, nil), user) })
	}
}

func testAuth(t *testing.T, g *guarded, user string) {
	l := g.open(t, user, func(o *etcdlog.Options) {
		o.TTL = func(collection string) time.Duration {
			return map[string]time.Duration{"events": 2 * time.Second}[collection]
		}
	})
	_, b := load(t, l)
	r1 := propose(t, l, put("pods", "a", "one", 0))
	r2 := propose(t, l, put("pods", "a", "two", r1))
	other := g.put(t, "/other") // the follower reaches revisions without a change
	if all := entries(follow(t, l, b.Head, other)); len(all) != 2 || all[0].Revision != r1 || all[1].Revision != r2 {
		t.Errorf("follow: got\n%s\nwant changes at %d and %d", text(all), r1, r2)
	}
	var at []string
	for o, err := range l.ObjectsAt(t.Context(), "pods", r1, "", "") {
		must(t, err)
		at = append(at, string(o.Bytes()))
	}
	if len(at) != 1 || at[0] != value("one", r1) {
		t.Errorf("objects at %d: got %q", r1, at)
	}
	past := 0
	for _, err := range l.Changes(t.Context(), "pods", b.Head, r2) {
		must(t, err)
		past++
	}
	if past != 2 {
		t.Errorf("%d changes after %d, want 2", past, b.Head)
	}
	event := propose(t, l, put("events", "e", "text", 0))
	ended := entries(follow(t, l, event, event+1))
	if len(ended) != 1 || ended[0].Key != "e" || ended[0].Object != nil {
		t.Errorf("the end of a lease: got %s", text(ended))
	}
	all, _ := load(t, l)
	if len(all) != 1 || all["pods a"] == nil {
		t.Errorf("load: got %v", all)
	}
}

// TestAuthOutdated checks that a request that etcd rejects because a user or role was changed
// meanwhile is sent again.
func TestAuthOutdated(t *testing.T) {
	l, k := scripted(t)
	k.script([]step{outdated, outdated}, nil)
	r := propose(t, l, put("pods", "a", "one", 0))
	k.script([]step{deaf, outdated}, []step{outdated}) // the fence, and the read of the outcome
	r = propose(t, l, put("pods", "a", "two", r))
	k.script(nil, []step{outdated, outdated})
	if all, b := load(t, l); len(all) != 1 || b.Head < r || all["pods a"].Modified != r {
		t.Errorf("got %v at %d, want an object at %d", all, b.Head, r)
	}
}

// TestAuthChanges: while an administrator changes users, and switches authentication off and on, each write is made,
// reads get a response, and the follower sees all.
func TestAuthChanges(t *testing.T) {
	tier.Full(t)
	g := startGuarded(t, 3, nil)
	l := g.open(t, limited, func(o *etcdlog.Options) {
		o.TTL = func(string) time.Duration { return time.Hour }
		o.LeaseReuse = time.Nanosecond
	})
	_, b := load(t, l)
	followed := make(chan map[store.Revision]bool, 1)
	var written atomic.Int64
	const writers, each = 8, 40
	go func() {
		seen := map[store.Revision]bool{}
		defer func() { followed <- seen }()
		for b, err := range l.Follow(t.Context(), b.Head) {
			if err != nil {
				t.Errorf("follow: %v", err)
				return
			}
			for _, e := range b.Entries {
				seen[e.Revision] = true
			}
			if len(seen) >= writers*each {
				return
			}
		}
	}()
	var writing sync.WaitGroup
	made := make([][]store.Revision, writers)
	for w := range writers {
		writing.Go(func() {
			last := store.Revision(0)
			for i := range each {
				d, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", fmt.Sprint(w), fmt.Sprint(i), last)}})
				if err != nil || !d.Made {
					t.Errorf("write %d of %d: got %+v, %v, want it made", i, w, d, err)
					return
				}
				last = d.Revision
				made[w] = append(made[w], last)
				written.Add(1)
				if _, err := l.Head(t.Context()); err != nil {
					t.Errorf("a read: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	for i := 0; ; i++ {
		select {
		case <-done:
			t.Logf("%d changes of users, %d writes", i, written.Load())
			if t.Failed() {
				return
			}
			seen := <-followed
			for _, r := range slices.Concat(made...) {
				if !seen[r] {
					t.Fatalf("the follower has not seen revision %d", r)
				}
			}
			return
		default:
		}
		g.addUser(t, fmt.Sprint("user", i))
		if i%10 == 9 {
			_, err := g.root.AuthDisable(t.Context())
			must(t, err)
			_, err = g.root.AuthEnable(t.Context())
			must(t, err)
		}
	}
}

// TestAuthCompaction: a user that may write compact_rev_key compacts, and another one gets an error that names the missing permission. The
// latter goes on, and learns of compactions.
func TestAuthCompaction(t *testing.T) {
	g := startGuarded(t, 1, nil)
	log := new(logged)
	often := func(o *etcdlog.Options) {
		o.CompactionInterval = 100 * time.Millisecond
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	l := g.open(t, objects, often)
	first := propose(t, l, put("pods", "a", "one", 0))
	await.True(t, "the log says what is missing", func() bool {
		return strings.Contains(log.String(), "needs a role with readwrite on the key compact_rev_key") ||
			strings.Contains(log.String(), "compacts for users with its role root alone")
	})
	for _, user := range []string{"root", "root"} { // not every release of etcd compacts for others
		g.open(t, user, func(o *etcdlog.Options) { o.CompactionInterval = 100 * time.Millisecond })
	}
	last := first
	await.True(t, "the history begins later", func() bool {
		last = propose(t, l, put("pods", "a", "more", last))
		for _, err := range l.ObjectsAt(t.Context(), "pods", first, "", "") {
			if expired := (*store.ExpiredError)(nil); errors.As(err, &expired) {
				return expired.Floor > first
			}
			must(t, err)
		}
		return false
	})
	_, b := load(t, l)
	if b.Floor <= first {
		t.Errorf("load: got the floor %d, want one after %d", b.Floor, first)
	}
}

// rootCompacts is an etcd that compacts for users with the role root alone: releases from 2026 do so.
type rootCompacts struct {
	scriptedKV
	root  atomic.Bool
	asked atomic.Int64
}

func (k *rootCompacts) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if !k.root.Load() {
		k.asked.Add(1)
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	return k.member.Compact(ctx, r)
}

// TestAuthMayNotCompact: a log that may not compact takes no turns from other servers, and the log of the process has
// one line about it. When it may, it compacts.
func TestAuthMayNotCompact(t *testing.T) {
	c := startCluster(t, 1, nil)
	conn, err := grpc.NewClient(c.members[0].clients.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	k, log := &rootCompacts{scriptedKV: scriptedKV{member: pb.NewKVClient(conn)}}, new(logged)
	listenWith(t, func(s *grpc.Server) { pb.RegisterKVServer(s, k) },
		&etcdlog.Options{CompactionInterval: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))})
	turns := func() int64 {
		response, err := k.member.Range(t.Context(), &pb.RangeRequest{Key: []byte("compact_rev_key")})
		must(t, err)
		if len(response.Kvs) == 0 {
			return 0
		}
		return response.Kvs[0].Version
	}
	await.True(t, "the log has tried to compact", func() bool { return k.asked.Load() > 5 })
	if n := turns(); n != 0 {
		t.Errorf("the log has taken %d turns", n)
	}
	if n := strings.Count(log.String(), "etcd was not compacted"); n != 1 || !strings.Contains(log.String(), "role root") {
		t.Errorf("the log says %d times that etcd was not compacted:\n%s", n, log)
	}
	k.script([]step{outdated, outdated}, nil)
	k.root.Store(true)
	await.True(t, "the log compacts", func() bool { return turns() > 2 })
	if n := strings.Count(log.String(), "etcd was not compacted"); n != 1 {
		t.Errorf("the log says %d times that etcd was not compacted:\n%s", n, log)
	}
}

// TestAuthFull: a user that may not ask for the size of the database detects that it is full, and that it has space
// again.
func TestAuthFull(t *testing.T) {
	g := startGuarded(t, 1, func(o *embed.Config) { o.QuotaBackendBytes = 16 << 20 })
	log := new(logged)
	l := g.open(t, limited, func(o *etcdlog.Options) {
		o.UsageInterval = 20 * time.Millisecond
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	var made []store.Revision
	for {
		d, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", fmt.Sprint(len(made)), strings.Repeat("x", 700<<10), 0)}})
		if errors.Is(err, store.ErrNoSpace) {
			break
		}
		must(t, err)
		made = append(made, d.Revision)
	}
	if !l.Usage().Full {
		t.Error("the usage is not that of a full database")
	}
	for i, r := range made {
		propose(t, l, del("pods", fmt.Sprint(i), r))
	}
	makeSpace(t, g.root)
	await.True(t, "the database has space", func() bool { return !l.Usage().Full })
	propose(t, l, put("pods", "a", "one", 0))
	if n := strings.Count(log.String(), "the size of etcd's database is unknown"); n > 1 { // some releases report it
		t.Errorf("the log says %d times that the size is unknown:\n%s", n, log)
	}
	for _, line := range []string{"etcd refuses writes", "etcd accepts writes again"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("the log says %d times: %s\n%s", n, line, log)
		}
	}
}

// TestAuthDenied checks that a server whose user may not read the prefix does not start, and names
// the missing right.
func TestAuthDenied(t *testing.T) {
	start := func(g *guarded, user, want string) {
		t.Helper()
		s := &tidemark.Server{InProcess: true, Storage: g.store(user, new(logged))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Start(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a server of %s: got the error %v, want %q", user, err, want)
		}
		must(t, s.Close())
	}
	g := startGuarded(t, 1, nil)
	start(g, noRole, "etcd: etcdserver: permission denied: the etcd user that the client certificate names needs a role with readwrite on the prefix of the keys")
	start(g, stranger, "etcd: etcdserver: permission denied: the etcd user that the client certificate names needs a role with readwrite on the prefix of the keys")
	// Without the flag, etcd takes no user from certificates.
	g = startGuarded(t, 1, func(o *embed.Config) { o.ClientTLSInfo.ClientCertAuth = false })
	start(g, limited, "etcd: etcdserver: user name is empty: etcd has authentication, and needs the flag --client-cert-auth")
}

// TestAuthServers: servers with a limited user do all that they do, and the log has nothing to complain about.
func TestAuthServers(t *testing.T) {
	g, dir, log := startGuarded(t, 1, nil), t.TempDir(), new(logged)
	start := func() (*tidemark.Server, *etcdstore.Cluster) {
		c := g.store(limited, log)
		c.Path = sameFiles(t, dir)
		return &tidemark.Server{InProcess: true, Storage: c}, c
	}
	s, c := start()
	client := begin(t, s)
	second, _ := start()
	other := begin(t, second)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	events, err := other.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a"})
	must(t, err)
	defer events.Stop()
	maps := client.CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	must(t, err)
	g.put(t, "/other") // reads of the newest state wait for its revision
	got, err := other.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
	must(t, err)
	if got.ResourceVersion != made.ResourceVersion {
		t.Errorf("the other server has version %s, want %s", got.ResourceVersion, made.ResourceVersion)
	}
	got.Data = map[string]string{"x": "1"}
	_, err = other.CoreV1().ConfigMaps("default").Update(ctx, got, metav1.UpdateOptions{})
	must(t, err)
	if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: got %v, want a conflict", err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified} {
		if e := <-events.ResultChan(); e.Type != want {
			t.Errorf("got the event %v, want %v", e.Type, want)
		}
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Name: "a", Namespace: "default"}}
	_, err = client.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{})
	must(t, err)
	lead := func() string {
		l, err := client.CoordinationV1().Leases("kube-system").Get(ctx, "tidemark", metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	await.True(t, "a server leads", func() bool { return lead() != "" })
	await.True(t, "both servers have a Lease", func() bool {
		all, err := client.CoordinationV1().Leases("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=tidemark"})
		must(t, err)
		return len(all.Items) == 2
	})
	// The permission is taken away and given back.
	_, err = g.root.RoleRevokePermission(ctx, limited, "/registry/", "/registry0")
	must(t, err)
	plain := client.CoreV1().RESTClient()
	err = plain.Post().MaxRetries(0).Namespace("default").Resource("configmaps").Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}).Do(ctx).Error()
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "needs a role with readwrite") {
		t.Errorf("a write without permission: %v", err)
	}
	_, err = g.root.RoleGrantPermission(ctx, limited, "/registry/", "/registry0", clientv3.PermissionType(clientv3.PermReadWrite))
	must(t, err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, second.Close())
	must(t, s.Close())
	if _, err := os.Stat(c.Path + "/objects.copy"); err != nil {
		t.Errorf("the server has left no copy: %v", err)
	}
	s, _ = start()
	client = begin(t, s)
	if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "b", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if strings.Contains(log.String(), "level=ERROR") || strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log has a warning:\n%s", log)
	}
}

// TestAuthMigrate: a limited user migrates from etcd, and compares etcd with a directory.
func TestAuthMigrate(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	m := newMigrated(t)
	g := startGuarded(t, 1, nil)
	c := g.store(limited, new(logged))
	c.Path = m.path("etcd-files")
	stop := m.serve(&tidemark.Server{Storage: c})
	m.fill()
	stop()
	flags := []string{"migrate", "--from=" + g.servers()[0], "--to=" + m.path("data"), "--encryption-provider-config=" + m.path("encryption.yaml"),
		"--etcd-cafile=" + c.CAFile, "--etcd-certfile=" + c.CertFile, "--etcd-keyfile=" + c.KeyFile}
	if out := m.tidemark(0, append(flags, "--dry-run")...); !strings.Contains(out, "the free space is not checked") && !strings.Contains(out, "MiB used") {
		t.Errorf("the size of etcd: %s", out)
	}
	m.tidemark(0, flags...)
	m.tidemark(0, append(flags, "--verify")...)
	m.tidemark(0, "check", m.path("data"))
}
