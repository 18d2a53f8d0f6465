package startup

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// clientsName is the ConfigMap in which extension servers look up the authorities of client
// certificates and of front proxies.
const clientsName = "extension-apiserver-authentication"

// authorities is the end of the keys whose values are certificates (PEM).
const authorities = "client-ca-file"

// mergedCertificates returns certificates with those added that they lack, and without those that have ended: other
// servers may have published theirs.
func mergedCertificates(have, add string, now time.Time) string {
	var all bytes.Buffer
	seen := map[string]bool{}
	for rest := []byte(have + "\n" + add); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all.String()
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(c.NotAfter) || seen[string(block.Bytes)] {
			continue
		}
		seen[string(block.Bytes)] = true
		_ = pem.Encode(&all, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // a buffer takes it
	}
}

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
			if c.Shared && strings.HasSuffix(key, authorities) {
				value = mergedCertificates(m.Data[key], value, c.now().Time)
			}
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
