package tidemark

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/world"
)

// Listen has the addresses that a Server listens on, and those at which clients reach it. Its zero value is a free port of
// 127.0.0.1.
type Listen struct {
	// Address is the IP address to listen on; empty: 127.0.0.1. With "0.0.0.0"
	// or "::" every client that reaches this machine can connect.
	Address string
	// Port to listen on; zero: a free one.
	Port int
	// MoreAddresses are further addresses to listen on: IP addresses, with the same port, and paths of unix sockets
	// after "unix:". Clients of a socket speak TLS and authenticate as others do; only the user of the server can
	// connect to it. The limits for connections hold for all addresses together. Nil: none.
	MoreAddresses []string
	// AdvertiseAddress is the IP address at which other machines reach the server: that of the endpoints of the
	// Service "kubernetes" and of kubeconfigs. Empty: Address, or if that is all addresses, the first address
	// of the machine for endpoints, and a loopback address for kubeconfigs.
	AdvertiseAddress string
}

// Check returns an error unless Address is empty or an IP address, MoreAddresses are other IP addresses and paths of sockets,
// Port is one or zero, and AdvertiseAddress is empty or the address of one machine.
func (l *Listen) Check() error {
	if net.ParseIP(l.address()) == nil {
		return fmt.Errorf("the address to listen on, %q, is not an IP address", l.Address)
	}
	seen := map[string]bool{l.address(): true}
	for _, a := range l.MoreAddresses {
		path, socket := socketPath(a)
		switch {
		case socket && path == "":
			return fmt.Errorf("the address to listen on, %q, has no path", a)
		case !socket && net.ParseIP(a) == nil:
			return fmt.Errorf("the address to listen on, %q, is neither an IP address nor unix:PATH", a)
		case seen[a]:
			return fmt.Errorf("the address to listen on, %q, is there twice", a)
		}
		seen[a] = true
	}
	if l.Port < 0 || l.Port > 65535 {
		return fmt.Errorf("the port %d is not one: want 1 to 65535, or 0 for a free one", l.Port)
	}
	return checkAdvertised(l.AdvertiseAddress)
}

// checkAdvertised returns an error unless an address is empty or that of one machine.
func checkAdvertised(address string) error {
	if address == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(address); err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return fmt.Errorf("the advertised address, %q, is not the IP address of a machine", address)
	}
	return nil
}

// socketPath returns the path of an address that is a unix socket.
func socketPath(address string) (path string, socket bool) {
	return strings.CutPrefix(address, "unix:")
}

func (l *Listen) address() string { return cmp.Or(l.Address, "127.0.0.1") }

func (l *Listen) config() world.Listen {
	return world.Listen{Addresses: append([]string{l.address()}, l.MoreAddresses...), Port: l.Port, Advertise: l.AdvertiseAddress}
}

// TLS configures the connections of a Server. Its zero value means a certificate of the server's own certificate authority
// for all names, TLS 1.2 and above, and the cipher suites of package crypto/tls.
type TLS struct {
	// CertFile and KeyFile hold a serving certificate (PEM, with its chain) and its key; they are read again when they
	// change. Empty: the server's own certificate authority issues one.
	CertFile, KeyFile string
	// Names are names and IP addresses at which clients reach the server, for its own certificate, in
	// addition to localhost, the names and addresses of the Service "kubernetes", and the addresses of Listen. An existing
	// certificate without them is issued again. With CertFile they have no effect. Nil: none.
	Names []string
	// SNI are certificates for single names, besides the default certificate. Nil: none.
	SNI []SNICertificate
	// MinVersion is the lowest version of TLS, a constant of package crypto/tls; zero:
	// tls.VersionTLS12.
	MinVersion uint16
	// CipherSuites are the cipher suites for TLS 1.2 and below, constants of package
	// crypto/tls. Nil: the default of that package. HTTP/2 requires one with
	// AES_128_GCM_SHA256, unless MinVersion is tls.VersionTLS13. Start logs a warning for
	// each insecure one.
	CipherSuites []uint16
}

// SNICertificate is a serving certificate for the clients that ask for one of its names. Its
// files are read again when they change.
type SNICertificate struct {
	// CertFile and KeyFile hold the certificate (PEM, with its chain) and its key.
	CertFile, KeyFile string
	// Names are DNS names, a "*" in place of the first label, or IP addresses. An address is
	// for clients that connect to it and send no name. Names take precedence over patterns.
	// Nil: the DNS names of the certificate, after the names that other certificates list.
	Names []string
}

// minVersion returns the lowest version of TLS.
func (t *TLS) minVersion() uint16 {
	if t.MinVersion == 0 {
		return tls.VersionTLS12
	}
	return t.MinVersion
}

// Check returns an error for files without their counterpart, and for names, versions and cipher suites that are not valid. It
// opens no file.
func (t *TLS) Check() error {
	for _, name := range t.Names {
		if net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("the name for the certificate, %q, is neither a DNS name nor an IP address", name)
		}
	}
	if v := t.minVersion(); v < tls.VersionTLS10 || v > tls.VersionTLS13 {
		return fmt.Errorf("TLS version %#x: want one from tls.VersionTLS10 to tls.VersionTLS13", v)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("a serving certificate needs both files, that of the certificate and that of its private key")
	}
	for _, id := range t.CipherSuites {
		if !suiteOf(tls.InsecureCipherSuites(), id) && !suiteOf(tls.CipherSuites(), id) {
			return fmt.Errorf("cipher suite %#04x is not supported", id)
		}
	}
	if len(t.CipherSuites) == 0 || t.minVersion() >= tls.VersionTLS13 {
		return nil // the suites of TLS 1.3 are fixed
	}
	const rsa, ecdsa = tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	if !slices.Contains(t.CipherSuites, rsa) && !slices.Contains(t.CipherSuites, ecdsa) {
		return fmt.Errorf("HTTP/2 requires the cipher suite %s or %s: add one, or set the minimal version to TLS 1.3", tls.CipherSuiteName(ecdsa), tls.CipherSuiteName(rsa))
	}
	return nil
}

func suiteOf(all []*tls.CipherSuite, id uint16) bool {
	return slices.ContainsFunc(all, func(c *tls.CipherSuite) bool { return c.ID == id })
}

func (t *TLS) config() world.TLS {
	c := world.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, Names: t.Names, MinVersion: t.minVersion(), CipherSuites: t.CipherSuites}
	for _, one := range t.SNI {
		c.SNI = append(c.SNI, serving.Pair(one))
	}
	return c
}
