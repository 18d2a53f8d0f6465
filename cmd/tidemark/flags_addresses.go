package main

import (
	"net"
	"net/url"
	"strings"

	"github.com/tidemark-dev/tidemark"
)

// bindAddresses is the value of --bind-address. The last one of repeated flags counts, as in kube-apiserver.
type bindAddresses tidemark.Listen

// Set implements pflag.Value.
func (b *bindAddresses) Set(text string) error {
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	b.Address, b.MoreAddresses = all[0], all[1:]
	return nil
}

// String implements pflag.Value.
func (b *bindAddresses) String() string {
	return strings.Join(append([]string{b.Address}, b.MoreAddresses...), ",")
}

// Type implements pflag.Value.
func (b *bindAddresses) Type() string { return "addresses" }

// moreURLs returns where clients reach a server that runs, apart from its URL.
func moreURLs(s *tidemark.Server) (all []string) {
	first, err := url.Parse(s.URL())
	if err != nil {
		return nil
	}
	for _, a := range s.Listen.MoreAddresses {
		if !strings.HasPrefix(a, "unix:") {
			a = "https://" + net.JoinHostPort(a, first.Port())
		}
		all = append(all, a)
	}
	return all
}
