package changes_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

func TestTouches(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage {
		if s == "" {
			return nil
		}
		return json.RawMessage(s)
	}
	for _, c := range []struct {
		path, of, from, to string
		want               bool
	}{
		{"spec.replicas", "spec.replicas", "3", "5", true},
		{".spec.replicas", "spec.replicas", "3", "5", true},
		{"spec", "spec.replicas", "3", "5", true},
		{"spec.replica", "spec.replicas", "3", "5", false},
		{"spec.replicas", "spec.replicasMax", "3", "5", false},
		{"spec.replicas", "status.replicas", "3", "5", false},
		{"spec.containers[name=app].image", "spec.containers[name=app].image", `"a"`, `"b"`, true},
		{"spec.containers[name=app]", "spec.containers[name=app].image", `"a"`, `"b"`, true},
		{"spec.containers[name=app].image", "spec.containers[name=other].image", `"a"`, `"b"`, false},
		{"spec.containers.image", "spec.containers[name=other].image", `"a"`, `"b"`, true},
		{"spec.containers[*].image", "spec.containers[name=other].image", `"a"`, `"b"`, true},
		{"spec.containers.command", "spec.containers[name=other].image", `"a"`, `"b"`, false},
		{"spec.ports[port=80]", "spec.ports[port=80,protocol=TCP].name", `"a"`, `"b"`, true},
		{"spec.ports[protocol=UDP]", "spec.ports[port=80,protocol=TCP].name", `"a"`, `"b"`, false},
		{`spec.containers[name=1]`, `spec.containers[name="1"].image`, `"a"`, `"b"`, true},
		{`metadata.labels["a.b/c"]`, `metadata.labels["a.b/c"]`, "", `"b"`, true},
		{`metadata.labels["app"]`, `metadata.labels.app`, "", `"b"`, true},
		{`metadata.labels`, `metadata.labels["a.b/c"]`, "", `"b"`, true},
		{`spec.hosts[="a"]`, `spec.hosts[="a"]`, `"a"`, "", true},
		{`spec.hosts[=a]`, `spec.hosts[="a"]`, `"a"`, "", true},
		{`spec.hosts[=a]`, `spec.hosts[="b"]`, `"b"`, "", false},
		{`spec.hosts`, `spec.hosts[="b"]`, `"b"`, "", true},
		// A value that was added or removed whole, or is compared whole.
		{"spec.containers.image", "spec.containers[name=app]", "", `{"name":"app","image":"a"}`, true},
		{"spec.containers.command", "spec.containers[name=app]", "", `{"name":"app","image":"a"}`, false},
		{"spec.selector.matchLabels.app", "spec.selector", `{"matchLabels":{"app":"a","x":"1"}}`, `{"matchLabels":{"app":"b","x":"1"}}`, true},
		{"spec.selector.matchLabels.x", "spec.selector", `{"matchLabels":{"app":"a","x":"1"}}`, `{"matchLabels":{"app":"b","x":"1"}}`, false},
		{"spec.ports[port=80].name", "spec.ports", `[{"port":80,"name":"a"},{"port":81}]`, `[{"port":81},{"port":80,"name":"b"}]`, true},
		{"spec.ports[port=81].name", "spec.ports", `[{"port":80,"name":"a"},{"port":81}]`, `[{"port":81},{"port":80,"name":"b"}]`, false},
		{"spec.hosts[=a]", "spec.hosts", `["a","b"]`, `["b"]`, true},
		{"spec", "", "", `{"spec":{}}`, true},
		{"status", "", "", `{"spec":{}}`, false},
	} {
		p, err := changes.ParsePath(c.path)
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if got := p.Touches([]changes.Field{{Path: c.of, From: raw(c.from), To: raw(c.to)}}); got != c.want {
			t.Errorf("%s touches %s %s -> %s: %v", c.path, c.of, c.from, c.to, got)
		}
	}
	for _, wrong := range []string{"", ".", "a..b", "a.", "a.[b=c]", "a[", "a[b", "a[b=c", `a["b`, `a["b"`, "a[0]", "a[b=c]d", "a[b=c,", `a[="x",b=c]`, strings.Repeat("a", 5000)} {
		if _, err := changes.ParsePath(wrong); err == nil {
			t.Errorf("%.20q is a path", wrong)
		}
	}
}

func FuzzPath(f *testing.F) {
	f.Add(`spec.containers[name=app].image`, `spec.containers[name="1"]`, `{"image":["a"]}`)
	f.Fuzz(func(t *testing.T, path, of, to string) {
		p, err := changes.ParsePath(path)
		if err != nil {
			return
		}
		p.Touches([]changes.Field{{Path: of, To: json.RawMessage(to)}})
		if !p.Touches([]changes.Field{{Path: p.String(), From: json.RawMessage("1"), To: json.RawMessage("2")}}) {
			t.Errorf("%s does not touch itself", path)
		}
	})
}

func TestInstant(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("X", 2*3600)
	now := time.Date(2026, 11, 30, 10, 52, 0, 0, zone)
	for text, want := range map[string]string{
		"now":                            "now",
		"81234":                          "81234",
		"-10m":                           "2026-11-30T08:42:00Z",
		"-1d":                            "2026-11-29T08:52:00Z",
		"-1d2h":                          "2026-11-29T06:52:00Z",
		"10:42":                          "2026-11-30T08:42:00Z",
		"10:42:07":                       "2026-11-30T08:42:07Z",
		"yesterday 10:42":                "2026-11-29T08:42:00Z",
		"yesterday 23:00":                "2026-11-29T21:00:00Z",
		"2026-11-28 10:42:07":            "2026-11-28T08:42:07Z",
		"2026-11-30T10:42:00+02:00":      "2026-11-30T08:42:00Z",
		"2026-11-30T08:42:00.123456789Z": "2026-11-30T08:42:00.123456789Z",
	} {
		if i, err := changes.ParseInstant(text, now); err != nil || i.String() != want {
			t.Errorf("%s: %s %v, want %s", text, i, err, want)
		}
	}
	for text, want := range map[string]string{
		"10m": "no instant", "11:00": "still to come", "": "no instant", "0": "no revision", "-5": "no instant", "tomorrow 10:00": "no instant",
		"99999999999999999999": "no revision", "25:00": "no instant", "--5m": "no instant", "-": "no instant",
	} {
		if i, err := changes.ParseInstant(text, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s %v, want %s", text, i, err, want)
		}
	}
	for text, want := range map[string]string{"10m": "2026-11-30T08:42:00Z", "-10m": "2026-11-30T08:42:00Z", "17": "17", "10:42": "2026-11-30T08:42:00Z"} {
		if i, err := changes.ParseSince(text, now); err != nil || i.String() != want {
			t.Errorf("since %s: %s %v, want %s", text, i, err, want)
		}
	}
	for text, ok := range map[string]bool{"17": true, "2026-11-30T10:42:00Z": true, "now": false, "-10m": false, "10:42": false, "": false, "0": false} {
		if _, err := changes.ParseURL(text); (err == nil) != ok {
			t.Errorf("in a URL, %q: %v", text, err)
		}
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	c := changes.Change{Revision: "81234", Time: time.Date(2026, 11, 30, 10, 42, 7, 123456789, time.UTC), Verb: "patch", User: "alice", UserAgent: "kubectl/v1.36.3 (linux/amd64)", FieldManager: "kubectl-scale",
		Resource: "deployments.apps", Namespace: "default", Name: "web", UID: "u",
		Fields: []changes.Field{{Path: "spec.replicas", From: json.RawMessage("3"), To: json.RawMessage("5")}}}
	c.Complete()
	got, err := json.Marshal(c)
	const want = `{"kind":"Change","apiVersion":"tidemark.dev/v1","metadata":{"name":"81234","namespace":"default","resourceVersion":"81234","creationTimestamp":"2026-11-30T10:42:07Z"},` +
		`"revision":"81234","time":"2026-11-30T10:42:07.123456789Z","verb":"patch","user":"alice","userAgent":"kubectl/v1.36.3 (linux/amd64)","fieldManager":"kubectl-scale",` +
		`"resource":"deployments.apps","namespace":"default","name":"web","uid":"u","fields":[{"path":"spec.replicas","from":3,"to":5}]}`
	if err != nil || string(got) != want {
		t.Errorf("%s %v\nwant\n%s", got, err, want)
	}
	for want, c := range map[string]changes.Change{
		"alice via kubectl":               c,
		"bob as alice via kubectl":        {User: "alice", ImpersonatedBy: "bob", UserAgent: "kubectl/v1"},
		"server (garbage)":                {Loop: "garbage"},
		"alice via kubectl-edit":          {User: "alice", FieldManager: "kubectl-edit"},
		"system:serviceaccount:a:b via x": {User: "system:serviceaccount:a:b", UserAgent: "x"},
		"unknown":                         {},
	} {
		if got := c.By(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	uid := func(from, to json.RawMessage) *changes.Change {
		return &changes.Change{Fields: []changes.Field{{Path: "metadata.name"}, {Path: "metadata.uid", From: from, To: to}}}
	}
	if one := json.RawMessage(`"u"`); !uid(nil, one).Creates() || uid(nil, one).Deletes() || !uid(one, nil).Deletes() || c.Creates() || c.Deletes() {
		t.Error("creations and deletions are not found")
	}
}
