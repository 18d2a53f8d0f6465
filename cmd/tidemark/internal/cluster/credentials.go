package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/pki"
)

// life is how long the certificates of components are valid. Each start issues new ones.
const life = 365 * 24 * time.Hour

// users are the users of the components, by kubeconfig.
var users = map[string]string{
	"controller-manager.conf": "system:kube-controller-manager",
	"scheduler.conf":          "system:kube-scheduler",
	"kwok.conf":               kwokUser,
}

// makeKey makes the key of service account tokens, which Tidemark and kube-controller-manager share, if there is none.
func (c *Cluster) makeKey() error {
	path := c.path("sa.key")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// writeCredentials writes the kubeconfigs of the components, and connects the client of this process. Tidemark's authority
// signs their certificates.
func (c *Cluster) writeCredentials(now time.Time) error {
	issuer, err := pki.ReadIssuer(c.path("data/pki"))
	if err != nil {
		return err
	}
	for file, user := range users {
		config := kubeconfig.Config{Server: c.URL, CA: issuer.CertificatePEM(), User: user}
		if config.Certificate, config.Key, err = issuer.IssueClient(user, nil, now, life); err != nil {
			return err
		}
		if err := atomicfile.Write(c.path(file), config.YAML(), 0o600); err != nil {
			return err
		}
	}
	certificate, key, err := issuer.IssueClient("tidemark-cluster", []string{"system:masters"}, now, life)
	if err != nil {
		return err
	}
	c.api, err = newClient(c.URL, issuer.CertificatePEM(), certificate, key)
	return err
}
