package tidemarktest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// TestClock: the clock of one cluster moves alone. Events end, tokens expire, and objects have the time of the clock.
func TestClock(t *testing.T) {
	t.Parallel()
	world := new(tidemarktest.World)
	env, other := world.Fork(t), world.Fork(t)
	const events = "/api/v1/namespaces/default/events"
	for _, e := range []*tidemarktest.Env{env, other} {
		e.Apply(t, "{apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {namespace: default}}", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}")
	}
	token := func() string {
		var response struct{ Status struct{ Token string } }
		_, text := request(t, env, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{"expirationSeconds":3600}}`)
		if err := json.Unmarshal([]byte(text), &response); err != nil || response.Status.Token == "" {
			t.Fatalf("%v: %s", err, text)
		}
		return response.Status.Token
	}
	first := token()
	valid := func(token string) bool {
		body, err := json.Marshal(map[string]any{"spec": map[string]string{"token": token}})
		if err != nil {
			t.Fatal(err)
		}
		_, text := request(t, env, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", string(body))
		return strings.Contains(text, `"authenticated":true`)
	}
	if !valid(first) {
		t.Error("a new token is not valid")
	}
	begin := env.Clock().Now(t)
	env.Clock().Advance(t, 59*time.Minute)
	env.Settle(t)
	if code, _ := request(t, env, "GET", events+"/e", ""); code != http.StatusOK || !valid(first) {
		t.Errorf("after 59 minutes the Event gets %d, and the token is valid: %t", code, valid(first))
	}
	env.As("alice").Clock().Advance(t, 5*time.Minute)
	env.Settle(t)
	if code, _ := request(t, env, "GET", events+"/e", ""); code != http.StatusNotFound || valid(first) {
		t.Errorf("after 64 minutes the Event gets %d, and the token is valid: %t", code, valid(first))
	}
	if !valid(token()) {
		t.Error("a token of then is not valid")
	}
	if code, _ := request(t, other, "GET", events+"/e", ""); code != http.StatusOK {
		t.Errorf("the Event of another cluster gets %d", code)
	}
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: late}}")
	var late struct {
		Metadata struct{ CreationTimestamp time.Time }
	}
	_, text := request(t, env, "GET", configMaps+"/late", "")
	if err := json.Unmarshal([]byte(text), &late); err != nil || late.Metadata.CreationTimestamp.Sub(begin) < 63*time.Minute {
		t.Errorf("the object was created at %v, %v after the begin, %v", late.Metadata.CreationTimestamp, late.Metadata.CreationTimestamp.Sub(begin), err)
	}
	if passed := other.Clock().Now(t).Sub(begin); passed > 30*time.Minute {
		t.Errorf("the clock of another cluster has moved by %v", passed)
	}
	r := &stopping{recording{TB: t}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		env.Clock().Advance(r, 20*365*24*time.Hour)
	}()
	<-done
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "Advance(175200h0m0s): want at most ten years, which are 87600h0m0s") {
		t.Errorf("twenty years at once: %q", r.errors)
	}
}
