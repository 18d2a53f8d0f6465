package webhook

import (
	"slices"
	"testing"
)

// FuzzResponse checks that for any response of a service, a user has a name, and the token is for a
// requested audience.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"ann","extra":{"a":["b"]}},"audiences":["api"]}}`))
	f.Add([]byte(`{"status":{"error":"no"}}`))
	f.Add([]byte(`[]`))
	w, r := &Tokens{c: Config{Audiences: []string{"api", "other"}}}, &remote{apiVersion: "authentication.k8s.io/v1"}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := r.decode(b)
		if err != nil {
			return
		}
		if a := w.read(s, []string{"api", "x"}); a.user != nil && (a.err != nil || a.user.Name == "" || !slices.Contains(a.good, "api") && !slices.Contains(a.good, "x")) {
			t.Errorf("%s is %+v", b, a)
		}
	})
}
