package pki

import (
	"net"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// always are the usual names of an API server: those of this machine, and those that pods use.
var always = []string{
	"localhost", "127.0.0.1", "::1",
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// hosts returns the names and addresses of the serving certificate, without duplicates and in
// a stable order. Names that are invalid in a certificate are left out. An unspecified address
// ("0.0.0.0", "::") stands for the addresses of all interfaces.
func hosts(more []string) []string {
	all := slices.Clone(always)
	if name, err := os.Hostname(); err == nil {
		more = append(slices.Clone(more), name)
	}
	for _, h := range more {
		ip := net.ParseIP(h)
		switch {
		case ip != nil && ip.IsUnspecified():
			all = append(all, interfaces()...)
		case ip != nil:
			all = append(all, ip.String())
		case len(validation.IsDNS1123Subdomain(h)) == 0:
			all = append(all, h)
		}
	}
	return unique(all)
}

// interfaces returns the addresses of this machine's interfaces.
func interfaces() []string {
	addresses, _ := net.InterfaceAddrs() // without them the rest is still right
	var all []string
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			all = append(all, n.IP.String())
		}
	}
	return all
}

func unique(all []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(s string) bool {
		was := seen[s]
		seen[s] = true
		return was
	})
}
