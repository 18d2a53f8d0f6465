package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
)

// registerTLS registers the flags of serving certificates.
func (f *serveFlags) registerTLS(flags *pflag.FlagSet) {
	s := &f.server
	flags.StringVar(&s.TLS.CertFile, "tls-cert-file", "", "PEM file of the serving certificate, followed by its chain (default: issued by the server's own authority)")
	flags.StringVar(&s.TLS.KeyFile, "tls-private-key-file", "", "PEM file of the private key of --tls-cert-file")
	flags.StringSliceVar(&s.TLS.Names, "tls-san", nil, "further DNS names (without wildcards) and IP addresses of the server for the certificate of its own authority, such as those of a load balancer; without effect with --tls-cert-file")
	flags.Var((*sniCertificates)(&s.TLS.SNI), "tls-sni-cert-key", `a further serving certificate and its private key, two PEM files: CERTFILE,KEYFILE or CERTFILE,KEYFILE:NAME,NAME. It is for clients that ask for one of the names: DNS names, *.example.com, or IP addresses for clients that send no name. Without names: those of the certificate. Exact names take precedence over patterns, listed names over those of certificates, the first of several over the others. Can be repeated`)
	flags.Var((*tlsVersion)(&s.TLS.MinVersion), "tls-min-version", "lowest version of TLS: "+strings.Join(slices.Sorted(maps.Keys(tlsVersions)), ", ")+" (default VersionTLS12)")
	flags.Var((*cipherSuites)(&s.TLS.CipherSuites), "tls-cipher-suites", "cipher suites for TLS 1.2 and below, separated by commas (default: those of Go); HTTP/2 requires one with AES_128_GCM_SHA256. Secure: "+
		strings.Join(cipherNames(tls.CipherSuites()), ", ")+". Insecure: "+strings.Join(cipherNames(tls.InsecureCipherSuites()), ", "))
}

// checkTLS makes the checks of several flags of serving certificates.
func (f *serveFlags) checkTLS() error {
	if s := &f.server; (s.TLS.CertFile == "") != (s.TLS.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file belong together: give both")
	}
	return nil
}

// sniCertificates is the value of --tls-sni-cert-key. Repeated flags add up.
type sniCertificates []tidemark.SNICertificate

// Set implements pflag.Value.
func (s *sniCertificates) Set(text string) error {
	files, list, listed := strings.Cut(text, ":")
	var c tidemark.SNICertificate
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			c.Names = append(c.Names, name)
		}
	}
	if listed && len(c.Names) == 0 {
		return errors.New("there is no name after the colon: want CERTFILE,KEYFILE:NAME,NAME")
	}
	certificate, key, _ := strings.Cut(files, ",")
	c.CertFile, c.KeyFile = strings.TrimSpace(certificate), strings.TrimSpace(key)
	if c.CertFile == "" || c.KeyFile == "" || strings.Contains(c.KeyFile, ",") {
		return errors.New("want two files, CERTFILE,KEYFILE, and perhaps names, CERTFILE,KEYFILE:NAME,NAME")
	}
	*s = append(*s, c)
	return nil
}

// String implements pflag.Value.
func (s *sniCertificates) String() string {
	var all []string
	for _, c := range *s {
		text := c.CertFile + "," + c.KeyFile
		if len(c.Names) > 0 {
			text += ":" + strings.Join(c.Names, ",")
		}
		all = append(all, text)
	}
	return strings.Join(all, ";")
}

// Type implements pflag.Value.
func (s *sniCertificates) Type() string { return "namedCertKey" }

var tlsVersions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// tlsVersion is the value of --tls-min-version; zero: not given.
type tlsVersion uint16

// Set implements pflag.Value.
func (v *tlsVersion) Set(text string) error {
	version, known := tlsVersions[text]
	if !known && text != "" {
		return fmt.Errorf("unknown tls version %q: want one of %s", text, strings.Join(slices.Sorted(maps.Keys(tlsVersions)), ", "))
	}
	*v = tlsVersion(version)
	return nil
}

// String implements pflag.Value.
func (v *tlsVersion) String() string {
	for name, version := range tlsVersions {
		if version == uint16(*v) {
			return name
		}
	}
	return ""
}

// Type implements pflag.Value.
func (v *tlsVersion) Type() string { return "string" }

// cipherSuites is the value of --tls-cipher-suites. Repeated flags add up.
type cipherSuites []uint16

// Set implements pflag.Value.
func (c *cipherSuites) Set(text string) error {
	if text == "" {
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		id, err := cipherSuite(name)
		if err != nil {
			return err
		}
		*c = append(*c, id)
	}
	return nil
}

// String implements pflag.Value.
func (c *cipherSuites) String() string {
	var all []string
	for _, id := range *c {
		all = append(all, tls.CipherSuiteName(id))
	}
	return strings.Join(all, ",")
}

// Type implements pflag.Value.
func (c *cipherSuites) Type() string { return "strings" }

// cipherSuite returns the cipher suite of a name.
func cipherSuite(name string) (uint16, error) {
	switch name { // names of older versions of Go
	case "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":
		return tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, nil
	case "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305":
		return tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, nil
	}
	for _, c := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if c.Name == name {
			return c.ID, nil
		}
	}
	return 0, fmt.Errorf("cipher suite %s not supported or doesn't exist", name)
}

// cipherNames returns the names of cipher suites in a stable order.
func cipherNames(all []*tls.CipherSuite) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}
