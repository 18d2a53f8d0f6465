package tidemarktest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// TestWorldMistakes: files that are skipped or cannot work are named.
func TestWorldMistakes(t *testing.T) {
	t.Parallel()
	used := &tidemarktest.World{CRDDirectoryPaths: []string{"testdata/nothere"}}
	r := &recording{TB: t}
	used.Fork(r)
	if log := r.log.String(); !strings.Contains(log, "do not exist: testdata/nothere") {
		t.Errorf("a path that was skipped: the log is %q", log)
	}
	above := &tidemarktest.World{CRDDirectoryPaths: []string{"testdata"}} // the definitions are in testdata/crd
	r = &recording{TB: t}
	above.Fork(r)
	if log := r.log.String(); !strings.Contains(log, "testdata has no manifest: no file whose name ends in .yaml") {
		t.Errorf("a directory above that of the definitions: the log is %q", log)
	}
	kustomized := t.TempDir() // what kubebuilder writes to config/crd before there is a definition
	for name, text := range map[string]string{"kustomization.yaml": "resources:\n- bases/widgets.yaml\n", "kustomizeconfig.yaml": "nameReference:\n- kind: Service\n"} {
		if err := os.WriteFile(filepath.Join(kustomized, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	alone := &tidemarktest.World{CRDDirectoryPaths: []string{kustomized}, Fixtures: os.DirFS(kustomized)}
	r = &recording{TB: t}
	alone.Fork(r)
	if log := r.log.String(); !strings.Contains(log, kustomized+" has no manifest: no file whose name ends in .yaml") || !strings.Contains(log, "Fixtures has no manifest") {
		t.Errorf("a kustomization without a definition: the log is %q", log)
	}
	copied := new(tidemarktest.World)
	reflect.ValueOf(copied).Elem().Set(reflect.ValueOf(used).Elem())
	if _, err := copied.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "is a copy") {
		t.Errorf("a copied World: %v", err)
	}
	bare := &tidemarktest.World{Fixtures: os.DirFS("internal")}
	r = &recording{TB: t}
	bare.Fork(r)
	if log := r.log.String(); !strings.Contains(log, "Fixtures has no manifest: no file whose name ends in .yaml") {
		t.Errorf("fixtures without a manifest: the log is %q", log)
	}
	twice := &tidemarktest.World{Users: []tidemarktest.User{{Name: "alice"}, {Name: "alice", Groups: []string{"developers"}}}}
	if _, err := twice.Open(t.Context()); err == nil || !strings.Contains(err.Error(), `World.Users has "alice" twice`) {
		t.Errorf("a user twice: %v", err)
	}
	fixtures := &tidemarktest.World{Fixtures: os.DirFS("nothere")}
	if _, err := fixtures.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "fixtures of nothere") {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

// TestWorldChanged: a field that has changed after the first Fork is an error. One that is set to the same value is none.
func TestWorldChanged(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"a.yaml": {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")}}
	same := func(w *tidemarktest.World) {
		w.Fixtures, w.Users, w.Controllers = files, []tidemarktest.User{{Name: "alice", Groups: []string{"developers"}}}, []string{"*"}
	}
	for field, change := range map[string]func(*tidemarktest.World){
		"":                      same,
		"CRDDirectoryPaths":     func(w *tidemarktest.World) { w.CRDDirectoryPaths = []string{"testdata/crd"} },
		"ErrorIfCRDPathMissing": func(w *tidemarktest.World) { w.ErrorIfCRDPathMissing = true },
		"Fixtures":              func(w *tidemarktest.World) { w.Fixtures = os.DirFS("testdata") },
		"Users":                 func(w *tidemarktest.World) { w.Users[0].Groups[0] = "admins" },
		"Webhooks":              func(w *tidemarktest.World) { w.Webhooks.Conversion = true },
		"Controllers":           func(w *tidemarktest.World) { w.Controllers = []string{"-*"} },
		"Seed":                  func(w *tidemarktest.World) { w.Seed = 1 },
	} {
		world := new(tidemarktest.World)
		same(world)
		world.Fork(t)
		change(world)
		env, err := world.Open(t.Context())
		if field == "" {
			if err != nil {
				t.Errorf("nothing has changed: %v", err)
			} else if err := env.Close(); err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "the field "+field+" of World has changed after the first Fork") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestNoWebhooks: paths without any webhook configuration are an error, since the webhooks under test would not be called. They
// may be without one if definitions have webhooks.
func TestNoWebhooks(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, paths := range [][]string{{"testdata/webhook/service.yaml", "testdata/webhook/kustomization.yaml"}, {empty}} {
		world := &tidemarktest.World{Webhooks: tidemarktest.Webhooks{Paths: paths}}
		if _, err := world.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no MutatingWebhookConfiguration and no ValidatingWebhookConfiguration in "+paths[0]) {
			t.Errorf("%s: %v", paths, err)
		}
		world = &tidemarktest.World{Webhooks: tidemarktest.Webhooks{Paths: paths, Conversion: true}}
		world.Fork(t)
	}
	other := &tidemarktest.World{Webhooks: tidemarktest.Webhooks{Configurations: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"}}}
	if _, err := other.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "no ValidatingWebhookConfiguration in Webhooks.Configurations") {
		t.Errorf("a configuration of another kind: %v", err)
	}
	taken := (&tidemarktest.World{Webhooks: tidemarktest.Webhooks{Conversion: true}}).Fork(t).Webhooks().Port
	if _, err := (&tidemarktest.World{Webhooks: tidemarktest.Webhooks{Conversion: true, LocalServingPort: taken}}).Open(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("LocalServingPort %d: ", taken)) {
		t.Errorf("a port that is taken: %v", err)
	}
	world := &tidemarktest.World{Webhooks: tidemarktest.Webhooks{Paths: []string{filepath.Join(empty, "nothere")}, IgnoreErrorIfPathMissing: true}}
	world.Fork(t)
}

// TestAs: a user that cannot be added fails the test.
func TestAs(t *testing.T) {
	t.Parallel()
	f := &fatal{&recording{TB: t}}
	env := new(tidemarktest.World).Fork(f)
	env.As("")
	env.As("alice").As("")
	env.Apply(f, "testdata/crd/widgets.yaml")
	if last := f.errors[len(f.errors)-1]; !strings.Contains(last, `Apply("testdata/crd/widgets.yaml"): want the text of a manifest`) {
		t.Errorf("a path: the error is %s", last)
	}
	f.errors = f.errors[:len(f.errors)-1]
	for _, text := range f.errors {
		if !strings.Contains(text, `As(""): `) {
			t.Errorf("the error is %s", text)
		}
	}
	if len(f.errors) != 2 {
		t.Errorf("the errors are %q", f.errors)
	}
}

// TestUnserved: a test that fails and does not serve its webhooks says so.
func TestUnserved(t *testing.T) {
	t.Parallel()
	world := &tidemarktest.World{Webhooks: tidemarktest.Webhooks{Paths: []string{"testdata/webhook"}}}
	for _, served := range []bool{false, true} {
		f := &failing{TB: t}
		env := world.Fork(f)
		if served {
			if err := env.Webhooks().Release(); err != nil {
				t.Error(err)
			}
		}
		for _, c := range f.cleanups {
			c()
		}
		if got := strings.Contains(f.log.String(), "nothing serves the webhooks"); got == served {
			t.Errorf("served %t: the log is\n%s", served, &f.log)
		}
	}
}

// TestLastChanges: the heartbeats of a leader do not push the changes out of the log of a failed test.
func TestLastChanges(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	env := tidemarktest.Start(f)
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: work}}")
	for i := range 40 {
		env.Apply(t, fmt.Sprintf("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: leader}, spec: {leaseTransitions: %d}}", i))
	}
	for _, c := range f.cleanups {
		c()
	}
	if log := f.log.String(); !strings.Contains(log, "configmaps default/work") || strings.Contains(log, "default/leader") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestHotLoopInLog: a hot loop has one line in the log of a failed test, and does not push the changes before out of it.
func TestHotLoopInLog(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	env := tidemarktest.Start(f)
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: work}}")
	for i := range 40 {
		env.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: hot}, data: {n: '%d'}}", i))
	}
	for _, c := range f.cleanups {
		c()
	}
	if log := f.log.String(); !strings.Contains(log, "configmaps default/work") || strings.Count(log, "configmaps default/hot") != 1 || !strings.Contains(log, "configmaps default/hot, 40 times up to ") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestGoldenWithout: Golden compares what is left.
func TestGoldenWithout(t *testing.T) {
	env := tidemarktest.Start(t)
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "{apiVersion: v1, kind: Secret, metadata: {name: b}}")
	file := filepath.Join(t.TempDir(), "golden.yaml")
	none := &recording{TB: t}
	env.Golden(none, file)
	tidemarktest.Start(t).Golden(none, file)
	if last := none.errors[len(none.errors)-1]; !strings.HasSuffix(last, "with this state: the test has not changed any object") {
		t.Errorf("without a change: %q", last)
	}
	none.errors = none.errors[:len(none.errors)-1]
	if len(none.errors) != 1 || !strings.Contains(none.errors[0], "there is no file "+file+": TIDEMARK_UPDATE_GOLDEN=1 writes it") {
		t.Errorf("without a file: %q", none.errors)
	}
	t.Setenv("TIDEMARK_UPDATE_GOLDEN", "1")
	env.Golden(t, file, tidemarktest.Without("secrets"))
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "configmaps default/a") || strings.Contains(string(text), "secrets") {
		t.Errorf("the file is %q, %v", text, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"true", "0", ""} { // the first one writes the file
		t.Setenv("TIDEMARK_UPDATE_GOLDEN", value)
		env.Golden(t, file, tidemarktest.Without("secrets"))
	}
	t.Setenv("TIDEMARK_UPDATE_GOLDEN", "yes")
	wrong := &fatal{&recording{TB: t}}
	env.Golden(wrong, file)
	if len(wrong.errors) != 1 || !strings.Contains(wrong.errors[0], `TIDEMARK_UPDATE_GOLDEN is "yes": want 1`) {
		t.Errorf("the errors are %q", wrong.errors)
	}
	t.Setenv("TIDEMARK_UPDATE_GOLDEN", "0")
	r := &fatal{&recording{TB: t}}
	env.Golden(r, file)
	env.Golden(r, file, tidemarktest.Without("secret"))
	if len(r.errors) < 2 || !strings.Contains(r.errors[0], "secrets default/b") || !strings.Contains(strings.Join(r.errors, "\n"), `no resource "secret"`) {
		t.Errorf("the errors are %q", r.errors)
	}
}
