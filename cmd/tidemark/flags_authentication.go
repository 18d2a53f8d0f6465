package main

import "github.com/spf13/pflag"

// registerAuthentication registers the flags of authentication.
func (f *serveFlags) registerAuthentication(flags *pflag.FlagSet) {
	flags.StringVar(&f.server.TokenAuthFile, "token-auth-file", "", `CSV file of bearer tokens, with lines of token,user,uid,"group1,group2"`)
	flags.StringVar(&f.server.ClientCAFile, "client-ca-file", "", "PEM file of certificate authorities for client certificates: the common name is the user, organizations are groups")
	flags.StringVar(&f.server.ServiceAccountIssuer, "service-account-issuer", "https://kubernetes.default.svc.cluster.local", "issuer of service account tokens, a URL; also their default audience")
	flags.StringSliceVar(&f.server.Authentication.APIAudiences, "api-audiences", nil, "audiences of this server, one of which a token must be for; also the default audiences of service account tokens (default: the issuer)")
	h := &f.server.Authentication.RequestHeader
	flags.StringVar(&h.ClientCAFile, "requestheader-client-ca-file", "", "PEM file of certificate authorities for the client certificates of front proxies, which name users in headers; without it the headers are ignored")
	flags.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", nil, "common names that the certificate of a front proxy may have (default: any)")
	flags.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", nil, "headers in which front proxies name the user; X-Remote-User is common")
	flags.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", nil, "headers in which front proxies name the user's UID; must contain X-Remote-Uid")
	flags.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", nil, "headers in which front proxies name the user's groups; X-Remote-Group is common")
	flags.StringSliceVar(&h.ExtraHeadersPrefixes, "requestheader-extra-headers-prefix", nil, "beginnings of headers in which front proxies send extra fields of the user; X-Remote-Extra- is common")
	flags.BoolVar(&f.anonymous, "anonymous-auth", true, "accept requests without credentials as the user system:anonymous; false answers them with 401")
}
