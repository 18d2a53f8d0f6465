package tidemark_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestFirstObjectsAgain: after another program has deleted all objects, the servers create those that every server has again.
// Otherwise they leave such objects deleted.
func TestFirstObjectsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, dir := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{}), t.TempDir()
		for range 2 {
			servertest.Start(t, &tidemark.Server{InProcess: true, Storage: &servertest.OnLog{Log: log, Dir: dir}, Controllers: []string{"-*"}})
		}
		other, err := stores.Open(t.Context(), store.Options{Shared: log.Open()})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		remove := func(collection string, o *store.Object) {
			t.Helper()
			if _, err := other.Apply(t.Context(), &store.Txn{Writes: []store.Write{{Collection: collection, Key: o.Key, If: o.Modified}}}); err != nil {
				t.Errorf("%s %s: %v", collection, o.Key, err)
			}
		}
		state := func() *store.State {
			s, err := other.MostRecent(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		const roles = "clusterroles.rbac.authorization.k8s.io"
		remove(roles, state().Get(roles, "view"))
		time.Sleep(3 * time.Minute)
		if state().Get(roles, "view") != nil {
			t.Error("a role that an administrator may delete is there again")
		}
		count := map[string]int{}
		for collection, o := range state().All() {
			if collection != "leases.coordination.k8s.io" { // the servers renew theirs
				count[collection]++
				remove(collection, o)
			}
		}
		time.Sleep(3 * time.Minute)
		now := map[string]int{}
		for collection := range state().All() {
			now[collection]++
		}
		count[roles]++ // view
		for _, collection := range []string{
			"namespaces", roles, "clusterrolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io", "services", "configmaps",
			"flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "priorityclasses.scheduling.k8s.io",
		} {
			if count[collection] == 0 || now[collection] != count[collection] {
				t.Errorf("%s: %d objects, want %d", collection, now[collection], count[collection])
			}
		}
	})
}
