//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/timeline"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// pastServer is a server whose changes get names: R1 is the first one that the test made.
type pastServer struct {
	t          *testing.T
	server     *tidemark.Server
	kubeconfig string
	names      []string // old and new, for a replacer
	made       int
}

func newPastServer(t *testing.T, s *tidemark.Server) *pastServer {
	t.Helper()
	p := &pastServer{t: t, server: servertest.Start(t, s), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := s.WriteKubeconfig(p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

// as makes a write of a user, and names its revision.
func (p *pastServer) as(user, method, path, body string) (revision string) {
	p.t.Helper()
	c, err := p.server.RESTConfigFor(user, "system:masters")
	if err != nil {
		p.t.Fatal(err)
	}
	text := p.send(c, method, path, body)
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(text, &o); err != nil {
		p.t.Fatal(err)
	}
	revision = o.Metadata.ResourceVersion
	if method == http.MethodDelete { // the response is a Status or the last version
		revision = p.newest()
	}
	p.made++
	p.names = append(p.names, revision, fmt.Sprintf("R%d", p.made))
	return revision
}

// newest returns the revision of the newest change of the settings.
func (p *pastServer) newest() string {
	p.t.Helper()
	_, out, _ := p.raw("history", "cm/settings", "--limit=1", "-o", "json")
	var l changes.ChangeList
	if err := json.Unmarshal([]byte(out), &l); err != nil || len(l.Items) != 1 {
		p.t.Fatalf("%v %s", err, out)
	}
	return l.Items[0].Revision
}

func (p *pastServer) send(c *rest.Config, method, path, body string) []byte {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	r.Header.Set("User-Agent", "kubectl/v1.37.2 (linux/amd64)")
	response, err := servertest.Client(p.t, c).Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		p.t.Fatalf("%s %s: %s %s %v", method, path, response.Status, text, err)
	}
	return text
}

// run runs a command with the kubeconfig. Revisions of the test are written by their names.
func (p *pastServer) run(args ...string) (code int, out, errs string) {
	return p.named(command(append(args, "--kubeconfig="+p.kubeconfig)...))
}

// raw is run for programs, whose output keeps its numbers and times.
func (p *pastServer) raw(args ...string) (code int, out, errs string) {
	return command(append(args, "--kubeconfig="+p.kubeconfig)...)
}

var (
	clockTime = regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d`)
	spaces    = regexp.MustCompile(`  +`)
	uids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	begins    = regexp.MustCompile(`history begins at revision \d+`)
	stamps    = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
)

func (p *pastServer) named(code int, out, errs string) (int, string, string) {
	for i := 0; i < len(p.names); i += 2 {
		whole := regexp.MustCompile(`\b` + p.names[i] + `\b`)
		out, errs = whole.ReplaceAllString(out, p.names[i+1]), whole.ReplaceAllString(errs, p.names[i+1])
	}
	errs = begins.ReplaceAllString(errs, "history begins at revision FIRST")
	out = stamps.ReplaceAllString(uids.ReplaceAllString(out, "UID"), "STAMP")
	return code, spaces.ReplaceAllString(clockTime.ReplaceAllString(out, "TIME"), "  "), errs
}

// want runs a command, and compares its exit code and what it prints.
func (p *pastServer) want(wantCode int, want string, args ...string) {
	p.t.Helper()
	code, out, errs := p.run(args...)
	got := out + errs
	if code != wantCode || strings.TrimSpace(got) != strings.TrimSpace(want) {
		p.t.Errorf("%s: exit code %d, want %d\n%s\nwant\n%s", strings.Join(args, " "), code, wantCode, got, want)
	}
}

const (
	deployments = "/apis/apps/v1/namespaces/default/deployments"
	settings    = "/api/v1/namespaces/default/configmaps"
	webBody     = `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},` +
		`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"side","image":"s"},{"name":"app","image":"v1"}]}}}}`
)

// incident makes a few changes of three users.
func (p *pastServer) incident() (revisions []string) {
	return []string{
		p.as("alice", "POST", deployments, webBody),
		p.as("alice", "PATCH", deployments+"/web", `{"spec":{"replicas":5}}`),
		p.as("bob", "PATCH", deployments+"/web", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"v2"},{"name":"side","image":"s"}]}}}}`),
		p.as("alice", "POST", settings, `{"metadata":{"name":"settings","labels":{"app":"web"}},"data":{"mode":"fast","a.b":"1"}}`),
		p.as("carol", "DELETE", settings+"/settings", ""),
	}
}

// TestHistory prints the changes of an incident in all forms.
func TestHistory(t *testing.T) {
	t.Parallel()
	p := newPastServer(t, &tidemark.Server{})
	p.incident()
	const head, object = "REVISION  TIME  VERB  BY  CHANGED\n", "REVISION  TIME  VERB  OBJECT  BY  CHANGED\n"
	const created = "R1  TIME  create  alice via kubectl  created\n"
	const scaled = "R2  TIME  patch  alice via kubectl  spec.replicas 3 -> 5\n"
	const image = "R3  TIME  patch  bob via kubectl  spec.template.spec.containers[name=app].image v1 -> v2\n"
	p.want(exitOK, head+image+scaled+created, "history", "deploy/web")
	p.want(exitOK, head+image+scaled+created, "history", "deployments.v1.apps", "web")
	p.want(exitOK, head+created+scaled+image, "history", "deploy/web", "--reverse")
	p.want(exitOK, head+image, "history", "deploy/web", "--limit=1")
	p.want(exitOK, head+image, "history", "deploy/web", "--since="+p.names[2])
	p.want(exitOK, head+scaled+created, "history", "deploy/web", "--until="+p.names[2])
	p.want(exitOK, head+scaled+"R1  TIME  create  alice via kubectl  created, spec.replicas added 3\n", "history", "deploy/web", "--field=spec.replicas")
	p.want(exitOK, "REVISION  TIME  VERB  NAMESPACE  OBJECT  BY  CHANGED\n"+
		"R3  TIME  patch  default  deployments.apps/web  bob via kubectl  spec.template.spec.containers[name=app].image v1 -> v2\n", "history", "-A", "--by=bob")
	p.want(exitOK, object+
		"R5  TIME  delete  configmaps/settings  carol via kubectl  deleted\n"+
		"R4  TIME  create  configmaps/settings  alice via kubectl  created\n"+
		"R3  TIME  patch  deployments.apps/web  bob via kubectl  spec.template.spec.containers[name=app].image v1 -> v2\n"+
		"R2  TIME  patch  deployments.apps/web  alice via kubectl  spec.replicas 3 -> 5\n", "history", "-l", "app=web", "--since="+p.names[0])
	p.want(exitOK, "change.tidemark.dev/R5\nchange.tidemark.dev/R4\n", "history", "configmap/settings", "-o", "name")
	const one, five = "change.tidemark.dev/R1\n", "change.tidemark.dev/R5\nchange.tidemark.dev/R4\nchange.tidemark.dev/R3\nchange.tidemark.dev/R2\nchange.tidemark.dev/R1\n"
	p.want(exitOK, five, "history", "-A", "--exclude-server", "--exclude=leases,ev", "-o", "name", "--limit=5")
	p.want(exitOK, five[:46], "history", "--exclude-server", "--exclude=deploy", "-o", "name")
	p.want(exitOK, five[46:], "history", "--exclude-server", "--exclude=cm", "--exclude=leases.coordination.k8s.io", "-o", "name")
	p.want(exitOK, one, "history", "--reverse", "--limit=1", "--exclude-server", "-o", "name")
	p.want(exitOK, "change.tidemark.dev/R5\nchange.tidemark.dev/R4\nchange.tidemark.dev/R3\n", "history", "cm/settings", "deploy/web", "-o", "name", "--limit=3")
	p.want(exitOK, "No changes found: no revision has deployments.apps/other in the namespace default; the history begins at revision FIRST.\n", "history", "deploy/other")
	p.want(exitOK, "No changes found: no revision has deployments.apps/web in the namespace shop; the history begins at revision FIRST; there is one in the namespace default.\n", "history", "deploy/web", "-n", "shop")
	p.want(exitOK, "No changes found: deployments.apps/web in the namespace default has some, but none that the flags select.\n", "history", "deploy/web", "--verb=delete")
	p.want(exitOK, object+"R3  TIME  patch  deployments.apps/web  bob via kubectl  spec.template.spec.containers[name=app].image v1 -> v2\n"+
		"No changes found: no revision has deployments.apps/wbe in the namespace default; the history begins at revision FIRST.\n", "history", "deploy", "web", "wbe", "--by=bob")
	p.want(exitOK, "No changes of things.example.com found in the namespace default; the history begins at revision FIRST; the server doesn't have a resource type \"things.example.com\" now.\n", "history", "things.example.com")
	p.want(exitOK, "No changes found: no revision has deployment.app/web in the namespace default; the history begins at revision FIRST; the server doesn't have a resource type \"deployment.app\" now.\n", "history", "deployment.app/web")
	p.want(exitOK, "No changes found in the namespace default that the flags select; the history begins at revision FIRST.\n", "history", "--since=now")
	p.want(exitOK, "No changes found that the flags select; the history begins at revision FIRST.\n", "history", "-A", "--since=now")
	p.want(exitOK, "No changes found in the namespace shop; the history begins at revision FIRST; there is no namespace shop now.\n", "history", "-n", "shop")
	p.want(exitOK, "No changes found: deployments.apps/web in the namespace default has some, but none that the flags select (--field=image is a field at the top of the object; others are paths, such as spec.replicas).\n", "history", "deploy/web", "--field=image")
	p.want(exitOK, "deployments.apps/web in the namespace default has no field image.\n", "blame", "deploy/web", "--field=image")
	if code, _, errs := p.run("history", "--verb=foo"); code != exitUsage || !strings.Contains(errs, `--verb="foo" is not known: want create, update,`) {
		t.Errorf("an unknown verb: %d %s", code, errs)
	}
	p.want(exitOK, object+"R5  TIME  delete  configmaps/settings  carol via kubectl  deleted, data.mode removed fast\n"+
		"R4  TIME  create  configmaps/settings  alice via kubectl  created, data.mode added fast\n",
		"history", "--field=data.mode", "--since="+p.names[0]) // no creation or deletion of an object without the field

	code, out, errs := p.raw("history", "deploy/web", "-o", "json", "--verb=patch")
	var list changes.ChangeList
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitOK || len(list.Items) != 2 || list.Kind != "ChangeList" || list.APIVersion != "tidemark.dev/v1" {
		t.Fatalf("%d %v %s%s", code, err, out, errs)
	}
	if c := list.Items[1]; c.Revision != p.names[2] || c.User != "alice" || c.Verb != "patch" || c.Resource != "deployments.apps" || len(c.Fields) != 1 || c.Fields[0].Path != "spec.replicas" || string(c.Fields[0].To) != "5" {
		t.Errorf("%+v", c)
	}
	if code, out, _ := p.run("history", "deploy/web", "-o", "yaml", "--limit=1"); code != exitOK || !strings.Contains(out, "kind: ChangeList") || !strings.Contains(out, "user: bob") {
		t.Errorf("%d %s", code, out)
	}
	for _, c := range []struct{ text, want string }{{"deployments.apps/w", "deployments.apps/web\n"}, {"deploym", "deployments.apps\n"}, {"cm/", "cm/kube-root-ca.crt\n"}} {
		if _, out, errs := command("__complete", "history", "--kubeconfig="+p.kubeconfig, c.text); !strings.HasPrefix(out, c.want) {
			t.Errorf("completion of %s: %s%s", c.text, out, errs)
		}
	}
	for args, wanted := range map[string]string{
		"history --exclude=nothing":              `--exclude=nothing: the server doesn't have a resource type`,
		"history --exclude=deploy/web":           "want resources, such as leases,events",
		"history nothing/x":                      `doesn't have a resource type "nothing"`,
		"history --since=9000000000000000000":    "later than the newest revision",
		"diff --from=9000000000000000000":        "later than the newest revision",
		"diff -A --from=2001-01-01T00:00:00Z":    "the first one that is left is revision",
		"undelete cm/never-there":                "it begins at 1",
		"history deploy/web --since=25:00":       "is no instant",
		"history deploy/web --field=a[0]":        "--field",
		"history deploy/web -o csv":              "want wide, yaml, json or name",
		"history deploy/web --watch --until=-1m": "exclude each other",
		"history deploy/web svc/x --watch":       "--watch is for one",
		"history deploy/web/x":                   "want RESOURCE/NAME",
		"history deploy x/y":                     "resource/name form",
		"blame deploy":                           "want one object",
		"diff deploy/web":                        "--from is missing",
		"restore deploy/web":                     "--at is missing",
		"undelete":                               "RESOURCE/NAME is missing",
		"undelete deploy":                        "want RESOURCE/NAME",
		"history --data-dir=x":                   "none of the others can be",
	} {
		if code, _, errs := p.run(strings.Fields(args)...); code == exitOK || !strings.Contains(errs, wanted) {
			t.Errorf("%s: %d %s, want %s", args, code, errs, wanted)
		}
	}
}

// TestHistoryWatch goes on with new changes after those that there are.
func TestHistoryWatch(t *testing.T) {
	t.Parallel()
	p := newPastServer(t, &tidemark.Server{})
	first := p.as("alice", "POST", settings, `{"metadata":{"name":"settings"}}`)
	client, err := serverclient.New(p.server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	lines, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		e := &timeline.Env{Server: client, Namespace: "default", Now: time.Now(), Out: out}
		ended <- e.History(ctx, []string{"cm/settings"}, timeline.HistoryOptions{Watch: true, Output: "json"})
		out.Close()
	}()
	d := json.NewDecoder(lines)
	next := func(revision string) {
		t.Helper()
		var c changes.Change
		if err := d.Decode(&c); err != nil || c.Revision != revision {
			t.Fatalf("%+v %v, want revision %s", c, err, revision)
		}
	}
	next(first)
	next(p.as("bob", "PATCH", settings+"/settings", `{"data":{"a":"1"}}`))
	next(p.as("bob", "PATCH", settings+"/settings", `{"data":{"a":"2"}}`))
	stop()
	go io.Copy(io.Discard, lines)
	if err := <-ended; err != nil {
		t.Errorf("the watch ends with %v", err)
	}
}

// TestDiff compares two states of objects, of a namespace and of everything.
func TestDiff(t *testing.T) {
	p := newPastServer(t, &tidemark.Server{})
	at := p.incident()
	p.want(exitFailed, `--- default/deployments.apps/web at R1
+++ default/deployments.apps/web at R2
@@ -9,7 +9,7 @@
  uid: UID
 spec:
  progressDeadlineSeconds: 600
-  replicas: 3
+  replicas: 5
  revisionHistoryLimit: 10
  selector:
  matchLabels:
`, "diff", "deploy/web", "--from="+at[0], "--to="+at[1])
	p.want(exitOK, "", "diff", "deploy/web", "--from="+at[2])
	p.want(exitOK, "[]\n", "diff", "deploy/web", "--from="+at[2], "-o", "json")
	code, out, errs := p.raw("diff", "--from="+at[0], "--to="+at[3], "-o", "json")
	var all []changes.Difference
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != exitFailed || len(all) != 2 {
		t.Fatalf("%d %v %s%s", code, err, out, errs)
	}
	if all[0].Resource != "configmaps" || len(all[1].Fields) != 2 && all[1].Fields[1].Path != "spec.template.spec.containers[name=app].image" {
		t.Errorf("%+v", all)
	}
	for _, c := range all[1].Fields {
		if c.Path != "spec.replicas" && c.Path != "spec.template.spec.containers[name=app].image" {
			t.Errorf("%+v", c)
		}
	}
	if code, out, _ := p.run("diff", "-A", "-l", "app=web", "--from="+at[3]); code != exitFailed || !strings.Contains(out, "+++ /dev/null\n") || !strings.Contains(out, "-  mode: fast\n") {
		t.Errorf("%d %s", code, out)
	}
	p.want(exitUsage, "Error: deployments.apps/none is there neither at R1 nor at R2\n", "diff", "deploy/none", "--from="+at[0], "--to="+at[1])

	script := filepath.Join(t.TempDir(), "compare")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nls $1 $2 | sed 's|.*/||'\nexit $CODE\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECTL_EXTERNAL_DIFF", script)
	for code, want := range map[string]int{"0": exitOK, "1": exitFailed, "3": exitUsage} {
		t.Setenv("CODE", code)
		if got, out, errs := p.run("diff", "deploy/web", "--from="+at[0]); got != want || !strings.Contains(out, "apps.v1.Deployment.default.web\n") {
			t.Errorf("an external exit code %s: %d %s%s", code, got, out, errs)
		}
	}
}

// TestBlame shows who set each field.
func TestBlame(t *testing.T) {
	t.Parallel()
	p := newPastServer(t, &tidemark.Server{})
	at := p.incident()
	p.want(exitOK, `REVISION  TIME  BY  FIELD  VALUE
R2  TIME  alice via kubectl  spec.replicas  5
`, "blame", "deploy/web", "--field=spec.replicas")
	p.want(exitOK, `REVISION  TIME  BY  FIELD  VALUE
R1  TIME  alice via kubectl  spec.replicas  3
`, "blame", "deploy/web", "--field=spec.replicas", "--at="+at[0])
	p.want(exitOK, `REVISION  TIME  BY  FIELD  VALUE
R3  TIME  bob via kubectl  spec.template.spec.containers[name=app].image  v2
R1  TIME  alice via kubectl  spec.template.spec.containers[name=side].image  s
`, "blame", "deploy/web", "--field=spec.template.spec.containers.image")
	code, out, errs := p.raw("blame", "deploy/web", "-o", "json")
	var all []struct {
		Path   string
		Value  json.RawMessage
		Change *changes.Change
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != exitOK || len(all) < 20 {
		t.Fatalf("%d %v %s%s", code, err, out, errs)
	}
	for _, f := range all {
		if f.Change == nil || f.Change.Fields != nil {
			t.Errorf("%s: %+v", f.Path, f.Change)
		}
	}
	p.want(exitFailed, "Error: configmaps/settings is not there in the namespace default; tidemark history configmaps/settings shows what happened to it\n", "blame", "cm/settings")
}

// TestRestoreObject writes an older state.
func TestRestoreObject(t *testing.T) {
	t.Parallel()
	p := newPastServer(t, &tidemark.Server{})
	at := p.incident()
	code, out, errs := p.run("restore", "deploy/web", "--at="+at[0], "--dry-run")
	if code != exitOK || !strings.Contains(out, "-  replicas: 5\n+  replicas: 3\n") || !strings.Contains(out, "(server dry run)") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	p.want(exitOK, "deployments.apps/web restored to its state at R1\n", "restore", "deploy/web", "--at="+at[0])
	p.want(exitOK, "deployments.apps/web unchanged: it is as it was at R1\n", "restore", "deploy/web", "--at="+at[0])
	p.want(exitFailed, "Error: configmaps/settings is not there: tidemark undelete configmaps/settings -n default --at=R4 brings it back\n", "restore", "cm/settings", "--at="+at[3])
	p.want(exitFailed, "Error: configmaps/settings was not there at R1\n", "restore", "cm/settings", "--at="+at[0])
}

const definition = `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"widgets","singular":"widget","kind":"Widget","shortNames":["wi"]},"versions":[{"name":"v1","served":true,"storage":true,
	"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
	"hosts":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

// TestUndelete brings an object, a definition with its custom resources, and a namespace with its content back.
func TestUndelete(t *testing.T) {
	t.Parallel()
	p := newPastServer(t, &tidemark.Server{})
	at := p.incident()
	p.want(exitOK, "configmaps/settings undeleted in the namespace default, as it was at R4 (dry run)\n", "undelete", "cm/settings", "--dry-run", "--at="+at[3])
	p.want(exitOK, "configmap/settings\n", "undelete", "cm/settings", "-o", "name")
	p.want(exitFailed, "Error: configmaps/settings is there, and nothing was changed; tidemark restore configmaps/settings -n default --at=... writes an older state\n", "undelete", "cm/settings")
	if text := p.get(settings + "/settings"); !strings.Contains(text, `"mode":"fast"`) || !strings.Contains(text, `"app":"web"`) {
		t.Error(text)
	}
	if code, _, errs := p.run("undelete", "cm/never"); code != exitFailed || !strings.Contains(errs, "the history has no deletion of configmaps/never in the namespace default") {
		t.Errorf("%d %s", code, errs)
	}

	// The finalizers are those from before the deletion began. A Job gets a selector of its new uid.
	p.as("alice", "POST", settings, `{"metadata":{"name":"held","finalizers":["example.com/held"]},"data":{"a":"1"}}`)
	p.send(p.server.RESTConfig(), "DELETE", settings+"/held", "")
	p.send(p.server.RESTConfig(), "PATCH", settings+"/held", `{"metadata":{"finalizers":null},"data":{"a":"2"}}`)
	if code, out, errs := p.run("history", "cm/held", "--verb=delete"); code != exitOK || !strings.HasSuffix(out, "delete  admin via kubectl  deletion began\n") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := p.run("undelete", "configmap", "held"); code != exitOK {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if text := p.get(settings + "/held"); !strings.Contains(text, `"finalizers":["example.com/held"]`) || strings.Contains(text, "deletionTimestamp") {
		t.Error(text)
	}
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	p.as("alice", "POST", jobs, `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
	old := uidOf(t, []byte(p.get(jobs+"/j")))
	p.send(p.server.RESTConfig(), "DELETE", jobs+"/j?propagationPolicy=Background", "")
	if code, out, errs := p.run("undelete", "job/j"); code != exitOK {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if text := p.get(jobs + "/j"); strings.Contains(text, old) {
		t.Errorf("the Job has its old uid %s: %s", old, text)
	}

	const crds, widgets = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/widgets"
	p.as("alice", "POST", crds, definition)
	p.await(widgets, http.StatusOK)
	p.as("alice", "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"hosts":["a","b"]},"status":{"phase":"done"}}`)
	p.as("bob", "PATCH", widgets+"/w", `{"spec":{"hosts":["b"]}}`)
	if code, out, errs := p.run("history", "widget/w", "--verb=patch"); code != exitOK || !strings.Contains(out, `spec.hosts[="a"] removed a`) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := p.run("blame", "widgets/w", "--field=spec.hosts"); code != exitOK || !strings.Contains(out, `alice via kubectl  spec.hosts[="b"]  b`) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	p.send(p.server.RESTConfig(), "DELETE", crds+"/widgets.example.com", "")
	p.await(crds+"/widgets.example.com", http.StatusNotFound)
	for _, name := range []string{"widgets.example.com", "widget", "wi", "Widget"} { // the definition is gone
		if code, out, errs := p.run("history", name+"/w", "--verb=patch"); code != exitOK || !strings.Contains(out, `spec.hosts[="a"] removed a`) {
			t.Errorf("history %s/w: %d %s%s", name, code, out, errs)
		}
		if code, _, errs := p.run("undelete", name+"/w"); code != exitFailed || !strings.Contains(errs, "bring its definition back first, as in tidemark undelete crd/widgets.example.com") {
			t.Errorf("undelete %s/w: %d %s", name, code, errs)
		}
	}
	if code, _, errs := p.run("undelete", "wi/w", fmt.Sprintf("--at=%s", p.names[len(p.names)-2])); code != exitFailed || !strings.Contains(errs, "bring its definition back first") {
		t.Errorf("undelete of an instant: %d %s", code, errs)
	}
	if code, out, errs := p.run("undelete", "crd/widgets.example.com", "--cascade"); code != exitOK || strings.Count(out, " undeleted") != 2 {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if text := p.get(widgets + "/w"); !strings.Contains(text, `"hosts":["b"]`) || !strings.Contains(text, `"phase":"done"`) {
		t.Error(text)
	}
	p.as("alice", "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}`)
	then := p.server.Root().Revision()
	p.as("bob", "PATCH", widgets+"/w", `{"spec":{"hosts":["c"]}}`)
	p.as("bob", "DELETE", widgets+"/x", "")
	p.as("alice", "POST", widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"later"}}`)
	p.send(p.server.RESTConfig(), "DELETE", crds+"/widgets.example.com", "")
	p.await(crds+"/widgets.example.com", http.StatusNotFound)
	if code, out, errs := p.run("undelete", "crd/widgets.example.com", "--cascade", fmt.Sprintf("--at=%d", then)); code != exitOK ||
		strings.Count(out, " undeleted") != 3 || !strings.Contains(errs, "widgets.example.com/later in the namespace default was not there at") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if text := p.get(widgets); !strings.Contains(text, `"hosts":["b"]`) || !strings.Contains(text, `"name":"x"`) || strings.Contains(text, "later") {
		t.Errorf("not as of the instant: %s", text)
	}
	p.send(p.server.RESTConfig(), "DELETE", crds+"/widgets.example.com", "")
	p.await(crds+"/widgets.example.com", http.StatusNotFound)
	if code, out, errs := p.run("undelete", "crd/widgets.example.com"); code != exitOK || strings.Count(out, " undeleted") != 1 {
		t.Errorf("%d %s%s", code, out, errs)
	}
	p.await(widgets, http.StatusOK)
	if code, out, errs := p.run("undelete", "wi/x"); code != exitOK || !strings.Contains(out, "widgets.example.com/x undeleted in the namespace default") {
		t.Errorf("%d %s%s", code, out, errs)
	}

	p.as("alice", "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	const shop = "/api/v1/namespaces/shop"
	owner := p.send(p.server.RESTConfig(), "POST", shop+"/configmaps", `{"metadata":{"name":"owner"}}`)
	p.send(p.server.RESTConfig(), "POST", shop+"/secrets", `{"metadata":{"name":"owned","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+uidOf(t, owner)+`"}]}}`)
	p.send(p.server.RESTConfig(), "DELETE", shop, "")
	p.await(shop, http.StatusNotFound)
	if code, out, errs := p.run("undelete", "namespace/shop", "--cascade", "--dry-run", "-o", "json"); code != exitOK || !strings.Contains(out, "ownerReferences") {
		t.Errorf("the owner is missing: %d %s%s", code, out, errs)
	}
	if code, out, errs := p.run("undelete", "namespace/shop", "--cascade"); code != exitOK || !strings.Contains(out, "configmaps/owner undeleted in the namespace shop") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if text := p.get(shop + "/secrets/owned"); !strings.Contains(text, `"uid":"`+uidOf(t, []byte(p.get(shop+"/configmaps/owner")))+`"`) {
		t.Errorf("the owner's new uid is missing: %s", text)
	}
}

func uidOf(t *testing.T, object []byte) string {
	t.Helper()
	var o struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(object, &o); err != nil {
		t.Fatal(err)
	}
	return o.Metadata.UID
}

func (p *pastServer) get(path string) string {
	p.t.Helper()
	return string(p.send(p.server.RESTConfig(), http.MethodGet, path, ""))
}

// await waits until a GET of a path has a code.
func (p *pastServer) await(path string, code int) {
	p.t.Helper()
	client := servertest.Client(p.t, p.server.RESTConfig())
	await.True(p.t, path, func() bool {
		response, err := client.Get(p.server.RESTConfig().Host + path)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == code
	})
}

// TestAt runs commands on an instant.
func TestAt(t *testing.T) {
	t.Parallel()
	p := newPastServer(t, &tidemark.Server{})
	at := p.incident()
	kept := filepath.Join(t.TempDir(), "path")
	code, out, errs := command("at", at[1], "--kubeconfig="+p.kubeconfig, "--", "sh", "-c", `grep server: "$KUBECONFIG"; ls -l "$KUBECONFIG" | cut -c1-10; echo "$KUBECONFIG" > `+kept+`; exit 7`)
	if code != 7 || !strings.Contains(out, "/at/"+at[1]+"\n-rw-------\n") || errs != "" {
		t.Errorf("%d %s%s", code, out, errs)
	}
	path, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(strings.TrimSpace(string(path))); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig is still there: %v", err)
	}
	if code, out, errs := command("at", "-0m", "--kubeconfig", p.kubeconfig, "--", "sh", "-c", `grep server: "$KUBECONFIG"`); code != exitOK || !strings.Contains(out, "/at/") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, _, errs := command("at", "9000000000000000000", "--kubeconfig="+p.kubeconfig, "--", "false"); code != exitFailed || !strings.Contains(errs, "later than the newest revision") {
		t.Errorf("a later revision: %d %s", code, errs)
	}
	// Commands inside another one: an instant is one of the server, and now is the instant.
	inner := *p
	inner.kubeconfig = filepath.Join(t.TempDir(), "inner")
	if code, out, errs := command("at", at[1], "--kubeconfig="+p.kubeconfig, "--", "sh", "-c", `cp "$KUBECONFIG" `+inner.kubeconfig); code != exitOK {
		t.Fatal(code, out, errs)
	}
	for instant, want := range map[string]string{at[3]: "/at/" + at[3] + "\n", "now": strings.TrimPrefix(p.server.RESTConfig().Host, "https:") + "\n"} {
		code, out, errs := command("at", instant, "--kubeconfig="+inner.kubeconfig, "--", "sh", "-c", `grep server: "$KUBECONFIG"`)
		if code != exitOK || !strings.HasSuffix(out, want) || strings.Count(out, "/at/") > 1 {
			t.Errorf("at %s inside at: %d %s%s", instant, code, out, errs)
		}
	}
	inner.want(exitOK, "REVISION  TIME  VERB  BY  CHANGED\nR2  TIME  patch  alice via kubectl  spec.replicas 3 -> 5\n", "history", "deploy/web", "--limit=1")
	if code, out, errs := inner.run("diff", "deploy/web", "--from="+at[0]); code != exitFailed || !strings.Contains(out, "+  replicas: 5\n") {
		t.Errorf("diff inside at: %d %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"undelete", "cm/settings"}, {"restore", "deploy/web", "--at=" + at[0]}} {
		if code, _, errs := inner.run(args...); code != exitFailed || !strings.Contains(errs, "/at/R2 is the state of an instant, which cannot be changed: run the command without tidemark at") {
			t.Errorf("%s inside at: %d %s", args, code, errs)
		}
	}
	if code, _, _ := command("at", "now", "--kubeconfig="+p.kubeconfig, "--", "sh", "-c", "kill -9 $$"); code != 128+9 {
		t.Errorf("a signal: %d", code)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"at", "Usage:"}, {"at --help", "Usage:"}, {"at -- true", "the instant is missing"}, {"at 5 --", "the command is missing"}, {"at 5 6 -- true", "one argument too many"},
		{"at tomorrow -- true", "is no instant"}, {"at --nope 5 -- true", "unknown flag"}, {"at now -- no-such-command-here", "no-such-command-here"},
	} {
		if _, out, errs := command(strings.Fields(c.args)...); !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: %s%s, want %s", c.args, out, errs, c.want)
		}
	}
}

// TestHistoryOfDirectory reads a directory that no server uses, and checks that it does not change.
func TestHistoryOfDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := &tidemark.Server{Storage: &datadir.Dir{Path: dir}}
	p := newPastServer(t, s)
	at := p.incident()
	run := func(args ...string) (int, string, string) {
		return p.named(command(append(args, "--data-dir="+dir)...))
	}
	if code, _, errs := run("history", "deploy/web"); code != exitFailed || !strings.Contains(errs, "is in use by process") || !strings.Contains(errs, "--kubeconfig=") {
		t.Errorf("beside the server: %d %s", code, errs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := contentsOf(t, dir)
	code, out, errs := run("history", "deploy/web")
	if want := "REVISION  TIME  VERB  BY  CHANGED\nR3  TIME  patch  bob via kubectl  spec.template.spec.containers[name=app].image v1 -> v2\n" +
		"R2  TIME  patch  alice via kubectl  spec.replicas 3 -> 5\nR1  TIME  create  alice via kubectl  created\n"; code != exitOK || out != want {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := run("history", "--exclude=deploy", "--exclude-server", "-o", "name"); code != exitOK || out != "change.tidemark.dev/R5\nchange.tidemark.dev/R4\n" {
		t.Errorf("--exclude: %d %s%s", code, out, errs)
	}
	if code, out, errs := run("diff", "deploy/web", "--from="+at[0], "--to="+at[1]); code != exitFailed || !strings.Contains(out, "+  replicas: 5\n") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if code, out, errs := run("blame", "deploy/web", "--field=spec.replicas"); code != exitOK || !strings.Contains(out, "R2") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	after := contentsOf(t, dir)
	for path, content := range before {
		if after[path] != content {
			t.Errorf("%s has changed", path)
		}
	}
	if len(after) != len(before) {
		t.Errorf("there were %d files, and now %d", len(before), len(after))
	}
}

// TestPlugins runs the commands under the names that kubectl looks for.
func TestPlugins(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	if code := runPlugin("history", []string{"--help"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "kubectl history [RESOURCE") {
		t.Errorf("%d %s%s", code, out.String(), errs.String())
	}
}

// TestRestoreForms tells a backup from an object.
func TestRestoreForms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file.tar")
	if err := os.WriteFile(file, []byte("no backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command("restore", file, filepath.Join(dir, "data")); code != exitFailed || !strings.HasPrefix(errs, "Warning: tidemark restore FILE DIR is now tidemark backup restore FILE DIR") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := command("backup", "restore", file, filepath.Join(dir, "data")); code != exitFailed || strings.Contains(errs, "Warning") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := command("restore", "deploy", "web"); code != exitUsage || !strings.Contains(errs, "--at is missing") {
		t.Errorf("%d %s", code, errs)
	}
}
