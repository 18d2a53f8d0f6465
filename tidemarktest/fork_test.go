package tidemarktest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"
)

// TestForkSince: a replica of a copy with a history can be older than the copy, and moves through that history.
func TestForkSince(t *testing.T) {
	t.Parallel()
	env := (&World{Controllers: []string{"-*"}}).Fork(t)
	since := env.world.Revision
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}")
	ctx := t.Context()
	f, err := env.forkAt(ctx, moment{at: since + 2, since: since})
	if err != nil {
		t.Fatal(err)
	}
	defer f.discard()
	r, err := f.replica(ctx, At(since))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(env.CAData())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: env.ServerName()}}
	defer transport.CloseIdleConnections()
	code := func(name string) int {
		request, err := http.NewRequestWithContext(ctx, "GET", r.URL()+"/api/v1/namespaces/default/configmaps/"+name+"?resourceVersion=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+r.Token())
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	f.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
	for step, want := range [][2]int{{404, 404}, {200, 404}, {200, 200}} {
		if got := [2]int{code("a"), code("b")}; got != want {
			t.Errorf("after %d changes: %d, want %d", step, got, want)
		}
		if err := r.advance(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := r.revision(ctx); err != nil || now <= since+2 { // c, a write of the copy itself
		t.Errorf("the replica is at %d, %v, want more than %d", now, err, since+2)
	}
}
