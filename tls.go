package tidemark

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/reload"
)

// certificate returns the function that selects the serving certificate.
func (s *Server) certificate(own *pki.Authority, log *slog.Logger) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if s.TLSCertFile == "" && s.TLSPrivateKeyFile == "" {
		return own.GetCertificate, nil
	}
	if s.TLSCertFile == "" || s.TLSPrivateKeyFile == "" {
		return nil, errors.New("a serving certificate needs both files, that of the certificate and that of its private key")
	}
	given, err := reload.New(reload.Config[*tls.Certificate]{
		Files: []string{s.TLSCertFile, s.TLSPrivateKeyFile},
		Load: func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSPrivateKeyFile)
			if err != nil {
				return nil, fmt.Errorf("the serving certificate in %s and %s: %w", s.TLSCertFile, s.TLSPrivateKeyFile, err)
			}
			return &c, nil
		},
		Now: s.now,
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == loopbackName {
			return own.GetCertificate(hello)
		}
		return given.Get(), nil
	}, nil
}
