package tidemark_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestOrigins checks that changes have the origin of the requests that made them.
func TestOrigins(t *testing.T) {
	var s tidemark.Server
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	const id = "11111111-2222-4333-8444-555555555555"
	const admin = "admin"
	send := func(method, path, body string, headers ...string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", "kubectl/v1.36")
		r.Header.Set("Audit-Id", id)
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if response, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
			t.Fatalf("%s %s: %s %s", method, path, resp.Status, response)
		}
	}
	const (
		maps = "/api/v1/namespaces/default/configmaps"
		pods = "/api/v1/namespaces/default/pods"
		pod  = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"terminationGracePeriodSeconds":0}}`
	)
	by := func(verb, user, agent, manager, subresource, audit string) string {
		return fmt.Sprintf("%s user=%s agent=%s manager=%s subresource=%s loop= audit=%s", verb, user, agent, manager, subresource, audit)
	}
	for _, row := range []struct {
		name string
		send func()
		want []string // of the changes that the request makes, oldest first
	}{
		{"create", func() { send("POST", maps, `{"metadata":{"name":"a"}}`) },
			[]string{by("create", admin, "kubectl/v1.36", "kubectl", "", id)}},
		{"create without an audit ID of the client, with a field manager", func() { send("POST", maps+"?fieldManager=me", `{"metadata":{"name":"b"}}`, "Audit-Id", "") },
			[]string{by("create", admin, "kubectl/v1.36", "me", "", "new")}},
		{"update", func() { send("PUT", maps+"/a", `{"metadata":{"name":"a"},"data":{"k":"1"}}`, "Audit-Id", "my own") },
			[]string{by("update", admin, "kubectl/v1.36", "kubectl", "", "my own")}},
		{"patch", func() {
			send("PATCH", maps+"/a", `{"data":{"k":"2"}}`, "Content-Type", "application/merge-patch+json", "Impersonate-User", "jane", "Impersonate-Group", "system:masters")
		}, []string{by("patch", "jane (by admin)", "kubectl/v1.36", "kubectl", "", id)}},
		{"apply", func() {
			send("PATCH", maps+"/c?fieldManager=mine", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`, "Content-Type", "application/apply-patch+yaml")
		}, []string{by("apply", admin, "kubectl/v1.36", "mine", "", id)}},
		{"an apply that changes nothing", func() {
			send("PATCH", maps+"/c?fieldManager=mine", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`, "Content-Type", "application/apply-patch+yaml")
		}, nil},
		{"a dry-run", func() { send("POST", maps+"?dryRun=All", `{"metadata":{"name":"d"}}`) }, nil},
		{"delete", func() { send("DELETE", maps+"/c", "", "User-Agent", "curl/8") },
			[]string{by("delete", admin, "curl/8", "", "", id)}},
		{"deletecollection", func() { send("DELETE", maps+"?fieldSelector=metadata.name%3Da", "") },
			[]string{by("deletecollection", admin, "kubectl/v1.36", "", "", id)}},
		{"create a pod", func() { send("POST", pods, pod) },
			[]string{by("create", admin, "kubectl/v1.36", "kubectl", "", id)}},
		{"a subresource", func() {
			send("PATCH", pods+"/p/status", `{"status":{"message":"m"}}`, "Content-Type", "application/merge-patch+json")
		}, []string{by("patch", admin, "kubectl/v1.36", "kubectl", "status", id)}},
		{"a binding", func() {
			send("POST", pods+"/p/binding", `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`)
		},
			[]string{by("create", admin, "kubectl/v1.36", "", "binding", id)}},
		{"an eviction", func() { send("POST", pods+"/p/eviction", `{"metadata":{"name":"p"}}`) },
			[]string{ // a condition, the deletion timestamp, the removal
				by("create", admin, "kubectl/v1.36", "", "eviction", id), by("create", admin, "kubectl/v1.36", "", "eviction", id), by("create", admin, "kubectl/v1.36", "", "eviction", id),
			}},
		{"a service, with the address that it needs", func() {
			send("POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`)
		}, []string{by("create", admin, "kubectl/v1.36", "kubectl", "", id), by("create", admin, "kubectl/v1.36", "kubectl", "", id)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := s.Store().Any().Revision()
			row.send()
			var got []string
			for _, ch := range changesSince(t, s.Store(), before) {
				if o := ch.Origin(); o.Actor == nil || o.Actor.Loop == "" {
					got = append(got, originText(o, id))
				}
			}
			if strings.Join(got, "\n") != strings.Join(row.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(row.want, "\n"))
			}
		})
	}
}

// TestOriginsOfTheServer: a write of the server without a request names the part that writes.
func TestOriginsOfTheServer(t *testing.T) {
	var s tidemark.Server
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	floor, _ := s.Store().Bounds()
	counts := map[string]int{}
	for _, ch := range changesSince(t, s.Store(), floor) {
		o := ch.Origin()
		if o.Actor == nil || o.Actor.Loop == "" || o.Actor.User == "" || o.Verb == store.VerbUnknown || o.Time.IsZero() {
			t.Errorf("%s %s at %d: %s", ch.Collection, ch.Key(), ch.Revision, originText(o, ""))
			continue
		}
		counts[o.Actor.Loop+" as "+o.Actor.User]++
	}
	for _, want := range []string{
		"startup as system:apiserver",
		"serviceaccount as system:serviceaccount:kube-system:service-account-controller",
		"root-ca-certificate-publisher as system:serviceaccount:kube-system:root-ca-cert-publisher",
	} {
		if counts[want] == 0 {
			t.Errorf("no change is of %q: %v", want, counts)
		}
	}
}

func originText(o store.Origin, id string) string {
	actor := store.Actor{}
	if o.Actor != nil {
		actor = *o.Actor
	}
	if actor.Impersonator != "" {
		actor.User += " (by " + actor.Impersonator + ")"
	}
	audit := o.AuditID.String()
	if _, ok := o.AuditID.UUID(); ok && audit != id {
		audit = "new"
	}
	return fmt.Sprintf("%s user=%s agent=%s manager=%s subresource=%s loop=%s audit=%s",
		o.Verb, actor.User, actor.UserAgent, actor.FieldManager, actor.Subresource, actor.Loop, audit)
}

// changesSince returns all changes after a revision.
func changesSince(t *testing.T, s *store.Store, after store.Revision) (all []store.CollectionChange) {
	t.Helper()
	f, err := s.Feed(after)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]store.CollectionChange, 64)
	for {
		n, err := f.TryNext(t.Context(), buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, buf[:n]...)
	}
}
