package startup

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// clientsName is the ConfigMap in which extension servers look up the authorities of client
// certificates and of front proxies.
const clientsName = "extension-apiserver-authentication"

// PublishClients publishes Config.Clients again. Of the other fields it needs Registry and
// Catalog.
func PublishClients(ctx context.Context, c Config) error { return c.ensureClients(ctx) }

// ensureClients publishes for extension servers how clients are authenticated.
func (c Config) ensureClients(ctx context.Context) error {
	if len(c.Clients) == 0 {
		return nil
	}
	t := registry.Target{Type: c.Catalog.Lookup("", "v1", "configmaps"), Namespace: metav1.NamespaceSystem, Name: clientsName}
	if c.stored(t) == nil {
		body, err := json.Marshal(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: t.Name, Namespace: t.Namespace},
			Data:       c.Clients,
		})
		if err != nil {
			return err
		}
		collection := t
		collection.Name = ""
		_, err = c.Registry.Create(ctx, collection, registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: manager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return c.edit(ctx, t, manager, func(o metav1.Object) error {
		m := o.(*corev1.ConfigMap)
		err := errUnchanged
		for key, value := range c.Clients {
			if m.Data[key] == value {
				continue
			}
			err = nil
			if m.Data == nil {
				m.Data = map[string]string{}
			}
			m.Data[key] = value
		}
		return err
	})
}
