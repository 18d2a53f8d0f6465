package tidemark

import (
	"errors"

	"github.com/tidemark-dev/tidemark/internal/world"
)

// Aggregation configures how requests are forwarded to extension API servers, which APIServices name.
type Aggregation struct {
	// ProxyClientCertFile and ProxyClientKeyFile hold the client certificate (PEM) with which the server calls extension
	// servers, and its key. They are read again when they change. Extension servers trust the user that the server names if
	// the authority of the certificate is that of RequestHeader.ClientCAFile. Empty: the server makes a
	// certificate with the name front-proxy-client, if RequestHeader.ClientCAFile is empty, too, and its own authority is kept
	// where other servers share the storage; otherwise there is none.
	ProxyClientCertFile, ProxyClientKeyFile string
	// EndpointRouting sends requests to the endpoints of a Service. False: to its cluster IP.
	EndpointRouting bool
	// ForwardRedirects passes redirects of extension servers on to clients. False: a redirect is 502.
	ForwardRedirects bool
}

// Check returns an error if the values contradict each other.
func (a *Aggregation) Check() error {
	if (a.ProxyClientCertFile == "") != (a.ProxyClientKeyFile == "") {
		return errors.New("the client certificate for extension servers needs a file with the certificate and one with its key")
	}
	return nil
}

func (a *Aggregation) config() (world.Aggregation, error) { return world.Aggregation(*a), a.Check() }
