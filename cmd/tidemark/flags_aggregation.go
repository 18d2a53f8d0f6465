package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// registerAggregation registers the flags of extension API servers.
func (f *serveFlags) registerAggregation(flags *pflag.FlagSet) {
	a := &f.server.Aggregation
	flags.StringVar(&a.ProxyClientCertFile, "proxy-client-cert-file", "", "PEM file with the client certificate for requests to extension API servers, which --requestheader-client-ca-file should have signed (default: one that the server makes itself)")
	flags.StringVar(&a.ProxyClientKeyFile, "proxy-client-key-file", "", "PEM file with the key of --proxy-client-cert-file")
	flags.BoolVar(&a.EndpointRouting, "enable-aggregator-routing", false, "send requests to the endpoints of an extension API server's Service instead of its cluster IP")
	flags.BoolVar(&f.rejectRedirects, "aggregator-reject-forwarding-redirect", true, "respond with 502 when an extension API server redirects, instead of passing the redirect on")
}

// checkAggregation checks these flags.
func (f *serveFlags) checkAggregation() error {
	f.server.Aggregation.ForwardRedirects = !f.rejectRedirects
	if err := f.server.Aggregation.Check(); err != nil {
		return fmt.Errorf("--proxy-client-cert-file, --proxy-client-key-file: %w", err)
	}
	return nil
}
