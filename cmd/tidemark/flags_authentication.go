package main

import "github.com/spf13/pflag"

// registerAuthentication registers the flags of authentication.
func (f *serveFlags) registerAuthentication(flags *pflag.FlagSet) {
	flags.StringVar(&f.server.TokenAuthFile, "token-auth-file", "", `CSV file of bearer tokens, with lines of token,user,uid,"group1,group2"`)
	flags.StringVar(&f.server.ClientCAFile, "client-ca-file", "", "PEM file of certificate authorities for client certificates: the common name is the user, organizations are groups")
	flags.StringVar(&f.server.ServiceAccountIssuer, "service-account-issuer", "https://kubernetes.default.svc.cluster.local", "issuer of service account tokens, a URL; also their default audience")
	flags.StringSliceVar(&f.server.Authentication.APIAudiences, "api-audiences", nil, "audiences of this server, one of which a token must be for; also the default audiences of service account tokens (default: the issuer)")
	flags.BoolVar(&f.anonymous, "anonymous-auth", true, "accept requests without credentials as the user system:anonymous; false answers them with 401")
}
