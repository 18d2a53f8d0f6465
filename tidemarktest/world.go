package tidemarktest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// TB are the methods of a *testing.T that the package needs; a GinkgoT has them too.
type TB interface {
	Helper()
	Name() string
	Cleanup(func())
	Failed() bool
	TempDir() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// World is the initial state of tests. Its zero value is an empty cluster. The fields must not
// change after the first Fork or Open. The methods are safe for concurrent use. A World must not be
// copied.
type World struct {
	// CRDDirectoryPaths are files, and directories whose files end in .yaml, .yml or .json. Their
	// objects are created, CustomResourceDefinitions first. Directories in directories are skipped, and
	// so are the kustomization.yaml and kustomizeconfig.yaml of a kustomization.
	CRDDirectoryPaths []string
	// ErrorIfCRDPathMissing makes a path that does not exist an error. Otherwise it is skipped.
	ErrorIfCRDPathMissing bool
	// Fixtures has manifests: all files of the file system whose names end in .yaml, .yml or .json,
	// in the order of their paths, without those of a kustomization. Nil: none.
	Fixtures fs.FS
	// Users are users that each Env has; Env.As makes others.
	Users []User
	// Webhooks are the webhooks under test.
	Webhooks Webhooks
	// Controllers selects the controllers of the server: "*" for all, "name", "-name". Nil: all.
	Controllers []string
	// Seed selects the UIDs and the generated names of all objects that are created in the world and in its Envs,
	// so that they are the same in each run, if the requests are. With it, the controllers of the server do one
	// thing at a time. A test that fails prints it. Zero: UIDs and names are random.
	Seed uint64
	// KubernetesVersion is the minor version of Kubernetes that the cluster has, such as "1.36": its kinds, fields, roles
	// and defaults of feature gates. The words of validation are those of the newest version. Worlds of several versions
	// share one server. Empty: the version of the server.
	KubernetesVersion string
	// Host is the server; nil: the process that the tests of `go test ./...` share.
	Host Host

	once     sync.Once
	self     *World       // that was prepared
	fields   []worldField // when it was prepared
	prepared worldInfo
	missing  []string // of CRDDirectoryPaths
	empty    []string // directories without manifests
	bare     bool     // Fixtures has no manifest
	host     *session
	err      error
}

// User is a user and its groups.
type User struct {
	Name   string
	Groups []string
}

// Start returns an empty cluster for a test. It is deleted when the test ends.
func Start(t TB) *Env {
	t.Helper()
	return new(World).Fork(t)
}

// Fork returns a copy of the world for a test. The first call prepares the world. The copy is deleted
// when the test ends. The test fails if its clients have watches open five seconds later, and its log has
// the objects that are being deleted and wait for their finalizers. Shortly before the time limit of go test, a test that
// still runs writes to standard error what its cluster waits for.
func (w *World) Fork(t TB) *Env {
	t.Helper()
	env, err := w.Open(context.Background())
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
		return nil
	}
	if len(w.missing) > 0 {
		t.Logf("tidemarktest: CRDDirectoryPaths: skipped, because they do not exist: %s", strings.Join(w.missing, ", "))
	}
	for _, dir := range w.empty {
		t.Logf("tidemarktest: CRDDirectoryPaths: %s has no manifest: no file whose name ends in .yaml, .yml or .json, apart from those of a kustomization; directories in it are skipped", dir)
	}
	if w.bare {
		t.Logf("tidemarktest: Fixtures has no manifest: no file whose name ends in .yaml, .yml or .json, apart from those of a kustomization")
	}
	env.t = t
	env.watchDeadline(t, func(text string) { os.Stderr.WriteString(text) })
	t.Cleanup(func() {
		t.Helper()
		reached := env.checkLeaks(t)
		if reached && (t.Failed() || panicking()) {
			env.dump(t)
			if env.webhook.unserved() {
				t.Logf("tidemarktest: writes that call webhooks fail or wait until their timeout, because %s", env.webhook.unservedText())
			}
		}
		if err := env.Close(); err != nil && reached {
			t.Errorf("tidemarktest: %v", err)
		}
	})
	return env
}

// panicking reports whether the goroutine panics. A test whose function panics is not marked as failed before its cleanups.
func panicking() bool {
	stack := make([]uintptr, 64)
	frames := runtime.CallersFrames(stack[:runtime.Callers(0, stack)])
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); frame.Function == "runtime.gopanic" {
			return true
		}
	}
	return false
}

// Open is Fork for callers without a test. The caller closes the Env.
func (w *World) Open(ctx context.Context) (*Env, error) {
	w.once.Do(func() {
		w.self, w.fields = w, w.currentFields()
		w.err = w.prepare(ctx)
	})
	if w.self != w {
		return nil, errors.New("this World is a copy of one that has been used, so its fields have no effect: make a World for each set of fields, and use pointers to it")
	}
	if w.err != nil {
		return nil, w.err
	}
	for i, f := range w.currentFields() {
		if !f.is(w.fields[i]) {
			return nil, fmt.Errorf("the field %s of World has changed after the first Fork: make a World for each set of fields", f.name)
		}
	}
	env := &Env{session: w.host, controllers: w.Controllers, seed: w.Seed}
	body := createRequest{Parent: w.prepared.Name, Controllers: w.Controllers, Lease: w.host.lease, Seed: w.Seed, Kubernetes: w.KubernetesVersion}
	if err := w.host.control.call(ctx, "POST", "worlds", body, &env.world); err != nil {
		var status *StatusError
		if w.Host != nil && !errors.As(err, &status) && ctx.Err() == nil {
			err = fmt.Errorf("%w. Has the server of World.Host ended, as with a World that is a variable of the package and a server of another test? Make a World for each server", err)
		}
		return nil, err
	}
	env.token, env.kubeconfig = env.world.Token, env.world.Kubeconfig
	if err := w.complete(ctx, env); err != nil {
		return nil, errors.Join(err, env.Close())
	}
	return env, nil
}

// worldField is a field of a World at some time.
type worldField struct {
	name  string
	value any    // a file system or a host: the same one counts as unchanged
	text  string // of another value
}

// currentFields returns the fields that must not change.
func (w *World) currentFields() []worldField {
	text := func(name string, value any) worldField {
		return worldField{name: name, text: fmt.Sprintf("%#v", value)}
	}
	return []worldField{
		text("CRDDirectoryPaths", w.CRDDirectoryPaths), text("ErrorIfCRDPathMissing", w.ErrorIfCRDPathMissing), {name: "Fixtures", value: w.Fixtures},
		text("Users", w.Users), text("Webhooks", w.Webhooks), text("Controllers", w.Controllers), text("Seed", w.Seed), text("KubernetesVersion", w.KubernetesVersion), {name: "Host", value: w.Host},
	}
}

// is reports whether two fields are the same.
func (f worldField) is(other worldField) bool {
	a, b := reflect.ValueOf(f.value), reflect.ValueOf(other.value)
	switch {
	case f.text != other.text || a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type():
		return false
	case !a.IsValid():
		return true
	case a.Kind() == reflect.Map:
		return a.Pointer() == b.Pointer()
	}
	return !a.Comparable() || a.Equal(b)
}

// complete adds the parts that are not copied with a world: users, and webhooks with their port.
func (w *World) complete(ctx context.Context, env *Env) error {
	users := map[string]*Env{}
	for _, u := range w.Users {
		user, err := env.addUser(ctx, u)
		if err != nil {
			return err
		}
		if users[u.Name] != nil {
			return fmt.Errorf("World.Users has %q twice", u.Name)
		}
		users[u.Name] = user
	}
	env.users = users
	if !w.Webhooks.used() {
		return nil
	}
	configurations, wanted, err := w.Webhooks.manifests()
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	definitions, _, err := readPaths(w.CRDDirectoryPaths, w.ErrorIfCRDPathMissing)
	if err != nil {
		return fmt.Errorf("CRDDirectoryPaths: %w", err)
	}
	if env.webhook, err = w.Webhooks.server(ctx, w.host.control); err != nil {
		return err
	}
	all, err := env.apply(ctx, append(configurations, definitions...), env.webhook)
	if err != nil {
		return err
	}
	if wanted && !slices.ContainsFunc(all, applied.isWebhook) {
		where := "Webhooks.Configurations"
		if len(w.Webhooks.Paths) > 0 {
			where = strings.Join(w.Webhooks.Paths, ", ") + " of Webhooks.Paths (with kubebuilder, `make manifests` writes them)"
		}
		return fmt.Errorf("there is no MutatingWebhookConfiguration and no ValidatingWebhookConfiguration in %s; if definitions alone have webhooks, set Webhooks.Conversion", where)
	}
	// The history of the test begins after these writes.
	return w.host.control.call(ctx, "GET", worldPath(env.world.Name), nil, &env.world)
}

// applyTimeout limits the preparation of a world.
const applyTimeout = 2 * time.Minute

// prepare creates the world that forks begin with.
func (w *World) prepare(ctx context.Context) error {
	var err error
	if w.host, err = openSession(w.Host); err != nil { // this may build the server, for minutes
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	definitions, missing, err := readPaths(w.CRDDirectoryPaths, w.ErrorIfCRDPathMissing)
	if err != nil {
		return fmt.Errorf("CRDDirectoryPaths: %w", err)
	}
	w.missing = missing
	for _, p := range w.CRDDirectoryPaths {
		if lacksManifests(p) {
			w.empty = append(w.empty, p)
		}
	}
	fixtures, err := readFixtures(w.Fixtures)
	if err != nil {
		return err
	}
	w.bare = w.Fixtures != nil && len(fixtures) == 0
	w.prepared.Name = "root"
	if err := w.settle(ctx); err != nil || len(definitions)+len(fixtures) == 0 && w.KubernetesVersion == "" {
		return err
	}
	body := createRequest{Controllers: w.Controllers, Lease: w.host.lease, Seed: w.Seed, Kubernetes: w.KubernetesVersion}
	if err := w.host.control.call(ctx, "POST", "worlds", body, &w.prepared); err != nil {
		return err
	}
	if len(definitions)+len(fixtures) == 0 {
		return w.settle(ctx)
	}
	all := applyRequest{Manifests: append(definitions, fixtures...)}
	switch err := w.host.control.call(ctx, "POST", worldPath(w.prepared.Name, "apply"), all, nil); {
	case err != nil && len(missing) > 0:
		return fmt.Errorf("%w (of CRDDirectoryPaths, these do not exist: %s)", err, strings.Join(missing, ", "))
	case err != nil:
		return err
	}
	return w.settle(ctx)
}

// settle waits until the controllers of the server have nothing left to do for the prepared world, such as right after
// the start of the server. Otherwise they would do it in each fork.
func (w *World) settle(ctx context.Context) error {
	body := map[string]int64{"timeoutMilliseconds": settleLimit.Milliseconds()}
	if err := w.host.control.call(ctx, "POST", worldPath(w.prepared.Name, "settle"), body, nil); err != nil {
		return fmt.Errorf("the world of the fixtures: %w", err)
	}
	return nil
}

// isManifest reports whether a file has objects, by its name. Directories of kubebuilder, such as config/crd, also have the
// files of a kustomization, which envtest skips too.
func isManifest(name string) bool {
	if slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "kustomizeconfig.yaml"}, name) {
		return false
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// lacksManifests reports whether a directory has no manifest.
func lacksManifests(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && isManifest(e.Name()) })
}

// readPaths reads files, and the manifests of directories. It returns the paths that do not exist; if strict, that is
// an error.
func readPaths(paths []string, strict bool) (all []manifest, missing []string, err error) {
	for _, p := range paths {
		info, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) && !strict {
			missing = append(missing, p)
			continue
		}
		if err != nil {
			if dir, unknown := os.Getwd(); unknown == nil && !filepath.IsAbs(p) {
				err = fmt.Errorf("%w (relative to %s)", err, dir)
			}
			return nil, nil, err
		}
		files := []string{p}
		if info.IsDir() {
			entries, err := os.ReadDir(p)
			if err != nil {
				return nil, nil, err
			}
			files = nil
			for _, e := range entries {
				if !e.IsDir() && isManifest(e.Name()) {
					files = append(files, filepath.Join(p, e.Name()))
				}
			}
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, manifest{Name: file, Content: string(b)})
		}
	}
	return all, missing, nil
}

// readFixtures reads all manifests of a file system, which may be nil.
func readFixtures(files fs.FS) ([]manifest, error) {
	if files == nil {
		return nil, nil
	}
	var all []manifest
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isManifest(path.Base(name)) {
			return err
		}
		b, err := fs.ReadFile(files, name)
		all = append(all, manifest{Name: name, Content: string(b)})
		return err
	})
	if err != nil {
		where := ""
		if fmt.Sprintf("%T", files) == "os.dirFS" { // its errors do not name the directory
			where = fmt.Sprintf(" of %v", files)
		}
		return nil, fmt.Errorf("fixtures%s: %w", where, err)
	}
	return all, nil
}
