package tidemark

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// namespaces are there from the first moment.
var namespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// createNamespaces makes those that are not there, at once, so that a durable log
// syncs once for all of them.
func createNamespaces(ctx context.Context, verbs *registry.Registry, catalog *resource.Catalog) error {
	t := registry.Target{Type: catalog.Lookup("", "v1", "namespaces")}
	errs := make([]error, len(namespaces))
	var wg sync.WaitGroup
	for i, name := range namespaces {
		if verbs.Store.Any().Get(t.Type.Collection, name) != nil {
			continue
		}
		wg.Go(func() {
			body := registry.Body{Media: wire.JSON, Bytes: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)}
			_, errs[i] = verbs.Create(ctx, t, body, registry.WriteOptions{FieldManager: "tidemark"})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the namespace %s cannot be made: %w", namespaces[i], err)
		}
	}
	return nil
}
