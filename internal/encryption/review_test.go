package encryption

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestKMSPatienceOfOutage: an outage has its own ten seconds, although one value could not be decrypted hours before.
func TestKMSPatienceOfOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{keyID: "one"}
		c.state.Version, c.state.Healthz, c.state.KeyId = "v2", "ok", "one"
		k := c.follow(t)
		s := &Set{rules: map[schema.GroupResource]*rule{{Resource: "secrets"}: {ways: []way{{prefix: "k8s:enc:kms:v2:p:", method: k}}}}}
		read := func(source string) (again bool) {
			t.Helper()
			e := envelope{keyID: "one", source: fmt.Appendf(nil, "%032s", source), kind: gcmSeed}
			value := append([]byte("k8s:enc:kms:v2:p:\x0a\x01x"), e.tail()...)
			_, _, err := s.OpenValue(t.Context(), "secrets", value, nil)
			var failed *OpenError
			if !errors.As(err, &failed) {
				t.Fatalf("%s: %v, want an *OpenError", source, err)
			}
			return failed.Again
		}
		synctest.Wait()
		c.set(func() { c.keyID = "" }) // no answer to this value
		if !read("destroyed") {
			t.Error("the first failure is final")
		}
		c.set(func() { c.keyID = "one" })
		time.Sleep(time.Hour) // the plugin is well, and all other data keys are cached
		synctest.Wait()
		if err := k.err(); err != nil {
			t.Fatal(err)
		}
		c.set(func() { c.fail, c.keyID = errors.New("restarting"), "" })
		time.Sleep(pollWell) // the status finds it before a value does
		synctest.Wait()
		if !read("new") {
			t.Error("a value is given up at once, a moment after the plugin went down")
		}
	})
}
