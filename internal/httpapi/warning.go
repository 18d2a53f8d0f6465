package httpapi

import (
	"strings"
	"unicode"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// warningBytes bounds all warnings of a response together. Above it, each is cut to
	// warningRunes, and those that still do not fit are left out.
	warningBytes = 4096
	warningRunes = 256
)

// warningHeaders returns warnings as values of the Warning header, without duplicates and
// within the header limits of clients. Like kube-apiserver, it drops warnings with control
// characters.
func warningHeaders(warnings []string) []string {
	var kept []string
	seen := map[string]bool{}
	size := 0
	for _, w := range warnings {
		if w == "" || seen[w] || strings.ContainsFunc(w, unicode.IsControl) { // a header cannot hold it
			continue
		}
		seen[w] = true
		kept = append(kept, w)
		size += len(w)
	}
	cut := size > warningBytes
	var out []string
	size = 0
	for _, w := range kept {
		if cut {
			w = firstRunes(w, warningRunes)
		}
		h, err := utilnet.NewWarningHeader(299, "-", w)
		if err != nil { // not UTF-8
			continue
		}
		if size += len(h); size > warningBytes && cut {
			break
		}
		out = append(out, h)
	}
	return out
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
