package main

import (
	"crypto/tls"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
)

func TestTLSFlags(t *testing.T) {
	type pairs = []tidemark.SNICertificate
	for _, row := range []struct {
		args []string
		want tidemark.TLS
		err  string
	}{
		{args: nil},
		{args: []string{"--tls-sni-cert-key=a.crt,a.key", "--tls-sni-cert-key= b.crt , b.key : *.x.org, x.org,10.0.0.1"}, want: tidemark.TLS{SNI: pairs{{CertFile: "a.crt", KeyFile: "a.key"}, {CertFile: "b.crt", KeyFile: "b.key", Names: []string{"*.x.org", "x.org", "10.0.0.1"}}}}},
		{args: []string{"--tls-sni-cert-key=a,b:fd00::1"}, want: tidemark.TLS{SNI: pairs{{CertFile: "a", KeyFile: "b", Names: []string{"fd00::1"}}}}},
		{args: []string{"--tls-sni-cert-key=a"}, err: "want two files"},
		{args: []string{"--tls-sni-cert-key=a,b,c"}, err: "want two files"},
		{args: []string{"--tls-sni-cert-key=,b"}, err: "want two files"},
		{args: []string{"--tls-sni-cert-key=a,b:"}, err: "no name after the colon"},
		{args: []string{"--tls-min-version=VersionTLS13"}, want: tidemark.TLS{MinVersion: tls.VersionTLS13}},
		{args: []string{"--tls-min-version="}},
		{args: []string{"--tls-min-version=1.3"}, err: `unknown tls version "1.3"`},
		{args: []string{"--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"}, want: tidemark.TLS{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256}}},
		{args: []string{"--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"}, want: tidemark.TLS{CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}}},
		{args: []string{"--tls-cipher-suites=NOPE"}, err: "Cipher suite NOPE not supported or doesn't exist"},
	} {
		var f serveFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.registerTLS(flags)
		err := flags.Parse(row.args)
		switch {
		case row.err != "":
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(row.err)) {
				t.Errorf("%q: %v, want %q", row.args, err, row.err)
			}
		case err != nil || !reflect.DeepEqual(f.server.TLS, row.want):
			t.Errorf("%q: %+v, %v; want %+v", row.args, f.server.TLS, err, row.want)
		}
	}
}

// FuzzSNICertificates checks that an accepted value has two files, and is parsed from its text
// again.
func FuzzSNICertificates(f *testing.F) {
	for _, text := range []string{"a,b", "a,b:c", "a,b:*.c,d", "a", ":", ",", "a,b:c:d", " a , b : c "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again sniCertificates
		if s.Set(text) != nil {
			return
		}
		if len(s) != 1 || s[0].CertFile == "" || s[0].KeyFile == "" || slices.Contains(s[0].Names, "") {
			t.Fatalf("%q: %+v", text, s)
		}
		if err := again.Set(s.String()); err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%q: %q is %+v (%v), want %+v", text, s.String(), again, err, s)
		}
	})
}

// FuzzCipherSuites: a name that is accepted has a number that Go knows.
func FuzzCipherSuites(f *testing.F) {
	f.Add("TLS_AES_128_GCM_SHA256,TLS_RSA_WITH_RC4_128_SHA")
	f.Add(",")
	f.Fuzz(func(t *testing.T, text string) {
		var c, again cipherSuites
		if c.Set(text) == nil && (again.Set(c.String()) != nil || !slices.Equal(c, again)) {
			t.Errorf("%q: %v, %v", text, c, again)
		}
	})
}
