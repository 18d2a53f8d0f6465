package nethttp

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// get reads from the API of an Env.
func get(t *testing.T, ctx context.Context, env *tidemarktest.Env) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", env.URL()+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := Client(env).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("the response is %d", response.StatusCode)
	}
}

// TestConnection: the clients of Envs share a connection, which outlives each of them and ends with the last one.
func TestConnection(t *testing.T) {
	world := new(tidemarktest.World)
	open := func() *tidemarktest.Env {
		env, err := world.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { env.Close() })
		return env
	}
	first, second := open(), open()
	get(t, t.Context(), first)
	reused := func(env *tidemarktest.Env, want bool) {
		t.Helper()
		got := false
		get(t, httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { got = c.Reused }}), env)
		if got != want {
			t.Errorf("the connection existed: %t, want %t", got, want)
		}
	}
	reused(second, true)
	reused(second.As("alice"), true)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	reused(second, true)
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if n := len(connections.to); n > 0 {
		t.Errorf("%d connections without an Env", n)
	}
	reused(open(), false)
}
