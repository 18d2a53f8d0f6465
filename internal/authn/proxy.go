package authn

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Proxy authenticates the users that front proxies name in headers. A front proxy has a client
// certificate of an authority of its own; the headers of other clients are ignored. A Proxy must
// not be modified once it is in use.
type Proxy struct {
	// Authority verifies the certificates of front proxies.
	Authority Authority
	// Names are the common names that a front proxy may have. Empty: any.
	Names []string
	// UsernameHeaders, UIDHeaders: the first header with a value counts. GroupHeaders: all values
	// of all headers count.
	UsernameHeaders, UIDHeaders, GroupHeaders []string
	// ExtraPrefixes are the beginnings of headers of extra fields. The rest of a header's name is
	// the key, percent-encoded.
	ExtraPrefixes []string
}

// byHeaders returns the user that a front proxy names. It returns nil without an error for a
// request without a client certificate, and for a front proxy that names none.
func (p *Proxy) byHeaders(r *http.Request, known *conn, now func() time.Time) (*User, error) {
	if p == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	var s *slot
	if known != nil {
		s = &known.proxy
	}
	v := outcome(s, r.TLS.PeerCertificates, []Authority{p.Authority}, now())
	if v.err != nil {
		return nil, fmt.Errorf("the client certificate is not of a front proxy: %w", v.err)
	}
	name := r.TLS.PeerCertificates[0].Subject.CommonName
	if v.pool == nil || len(p.Names) > 0 && !slices.Contains(p.Names, name) {
		return nil, fmt.Errorf("the client certificate is not of a front proxy: its name %q is not allowed", name)
	}
	return p.user(r.Header), nil
}

// user returns the user that the headers name, or nil.
func (p *Proxy) user(h http.Header) *User {
	u := &User{Name: first(h, p.UsernameHeaders), UID: first(h, p.UIDHeaders)}
	if u.Name == "" {
		return nil
	}
	for _, name := range p.GroupHeaders {
		for _, group := range h.Values(name) {
			if group != "" {
				u.Groups = append(u.Groups, group)
			}
		}
	}
	for _, prefix := range p.ExtraPrefixes {
		for name, values := range h {
			if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			key := strings.ToLower(name[len(prefix):])
			if decoded, err := url.PathUnescape(key); err == nil {
				key = decoded
			}
			if u.Extra == nil {
				u.Extra = map[string][]string{}
			}
			u.Extra[key] = append(u.Extra[key], values...)
		}
	}
	return u.InGroup()
}

// first returns the first value of the first header that has one.
func first(h http.Header, names []string) string {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			return value
		}
	}
	return ""
}
