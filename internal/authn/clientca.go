package authn

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tidemark-dev/tidemark/internal/reload"
)

// AuthorityFile reads certificates from a PEM file, and reads it again when it changes. A file
// without a certificate is an error. If a changed file is invalid, that is logged and the
// certificates stay as they are. now is the clock for checking the file; nil: time.Now.
func AuthorityFile(path string, now func() time.Time, log *slog.Logger) (Authority, error) {
	v, err := reload.New(reload.Config[*x509.CertPool]{
		Files: []string{path},
		Load: func() (*x509.CertPool, error) {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(b) {
				return nil, fmt.Errorf("%s holds no certificate in PEM", path)
			}
			return pool, nil
		},
		Now: now,
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	return v.Get, nil
}
