package main

import "github.com/spf13/pflag"

// registerTLS registers the flags of serving certificates.
func (f *serveFlags) registerTLS(flags *pflag.FlagSet) {
	flags.StringVar(&f.server.TLSCertFile, "tls-cert-file", "", "PEM file of the serving certificate, followed by its chain (default: issued by the server's own authority)")
	flags.StringVar(&f.server.TLSPrivateKeyFile, "tls-private-key-file", "", "PEM file of the private key of --tls-cert-file")
}
