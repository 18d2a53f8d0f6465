package serving

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/reload"
)

// Pair names the files of a certificate and its private key, both PEM. The certificate is
// followed by its chain.
type Pair struct {
	CertFile, KeyFile string
	// Names are the names for which a client gets the certificate: DNS names, "*" in place of
	// their first label, and IP addresses for clients that send no name. Empty: the names in
	// the certificate.
	Names []string
}

// load reads the files.
func (p Pair) load() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("the serving certificate in %s and %s: %w", p.CertFile, p.KeyFile, err)
	}
	return &c, nil
}

// CertificatesConfig configures Certificates.
type CertificatesConfig struct {
	// Default returns the certificate for clients that no pair is for. It is safe for
	// concurrent use.
	Default func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Pairs are searched in this order.
	Pairs []Pair
	// Now is the clock of reloads; nil: time.Now.
	Now func() time.Time
	// Log gets a line for each reload, and for each that failed.
	Log *slog.Logger
}

// Certificates selects the certificate for a handshake by the name that the client asks for
// (SNI). The files of a pair are read again when they change; a pair that cannot be read stays
// as it was, and does not affect the others. All methods are safe for concurrent use.
//
// A name that a pair lists takes precedence over a name of a certificate, and each of them over
// a pattern with "*". Of two pairs with the same name the first one wins. A client that sends
// no name gets the pair that lists the address to which it has connected. If nothing matches,
// the client gets the first certificate that it can use and that is valid for the name: the
// default one, then those of the pairs in their order; or else the default one.
type Certificates struct {
	byDefault func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	pairs     []Pair
	values    []*reload.Value[*tls.Certificate]
	table     atomic.Pointer[names]
}

// names is an index of certificates by name. It is immutable.
type names struct {
	of     []*tls.Certificate // in the order of the pairs
	byName map[string]*tls.Certificate
}

// NewCertificates reads the pairs. It returns an error if one cannot be read.
func NewCertificates(c CertificatesConfig) (*Certificates, error) {
	s := &Certificates{byDefault: c.Default, pairs: c.Pairs}
	for _, p := range c.Pairs {
		v, err := p.Reloaded(c.Now, c.Log)
		if err != nil {
			return nil, err
		}
		s.values = append(s.values, v)
	}
	return s, nil
}

// Reloaded returns the certificate of the files as a value that follows them. The clock may be
// nil.
func (p Pair) Reloaded(now func() time.Time, log *slog.Logger) (*reload.Value[*tls.Certificate], error) {
	return reload.New(reload.Config[*tls.Certificate]{Files: []string{p.CertFile, p.KeyFile}, Load: p.load, Now: now, Log: log})
}

// Get is for tls.Config.GetCertificate.
func (s *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	n := s.current()
	if c := n.find(hello); c != nil {
		return c, nil
	}
	d, err := s.byDefault(hello)
	if err == nil && hello.SupportsCertificate(d) == nil {
		return d, nil
	}
	for _, c := range n.of {
		if hello.SupportsCertificate(c) == nil {
			return c, nil
		}
	}
	return d, err
}

// All returns the certificates that the files of the pairs hold now.
func (s *Certificates) All() []*tls.Certificate { return slices.Clone(s.current().of) }

// current returns the index of the certificates that the files hold now.
func (s *Certificates) current() *names {
	before := s.table.Load()
	same := before != nil
	now := make([]*tls.Certificate, len(s.values))
	for i, v := range s.values {
		now[i] = v.Get()
		same = same && now[i] == before.of[i]
	}
	if same {
		return before
	}
	n := index(s.pairs, now)
	s.table.Store(n)
	return n
}

// index makes the index of certificates, one for each pair.
func index(pairs []Pair, certificates []*tls.Certificate) *names {
	listed, own := map[string]*tls.Certificate{}, map[string]*tls.Certificate{}
	for i, c := range slices.Backward(certificates) { // the first pair is the last to be set
		for _, name := range pairs[i].Names {
			listed[canonical(name)] = c
		}
		if len(pairs[i].Names) == 0 {
			for _, name := range namesOf(c.Leaf) {
				own[canonical(name)] = c
			}
		}
	}
	for name, c := range listed {
		own[name] = c
	}
	return &names{of: certificates, byName: own}
}

// find returns the certificate for the name that the client asks for, or nil.
func (n *names) find(hello *tls.ClientHelloInfo) *tls.Certificate {
	name := hello.ServerName
	if name == "" {
		return n.byName[localAddress(hello.Conn)]
	}
	name = canonical(name)
	if c := n.byName[name]; c != nil {
		return c
	}
	if _, rest, dotted := strings.Cut(name, "."); dotted {
		return n.byName["*."+rest]
	}
	return n.byName["*"]
}

// canonical returns the form in which names are compared.
func canonical(name string) string {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return strings.ToLower(name)
}

// localAddress returns the address to which the client has connected, or "".
func localAddress(c net.Conn) string {
	if c == nil {
		return ""
	}
	a, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	return a.AddrPort().Addr().Unmap().WithZone("").String()
}

// namesOf returns the DNS names of a certificate. The common name counts if it is a DNS name.
// Addresses do not count: a client cannot ask for one.
func namesOf(c *x509.Certificate) []string {
	all := slices.Clone(c.DNSNames)
	cn := c.Subject.CommonName
	if _, err := netip.ParseAddr(cn); err == nil {
		return all
	}
	if cn == "*" || len(validation.IsDNS1123Subdomain(strings.TrimPrefix(cn, "*."))) == 0 {
		all = append(all, cn)
	}
	return all
}
