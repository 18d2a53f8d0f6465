package authn

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// FuzzTokens: whatever a token file holds, an error shows none of it, and users
// have a name and the group of the authenticated.
func FuzzTokens(f *testing.F) {
	f.Add([]byte("t1,ann,7,\"dev,ops\"\nt2,bob,8\n"))
	f.Add([]byte("a,b\n"))
	f.Add([]byte("\"a\nb,c\","))
	f.Fuzz(func(t *testing.T, b []byte) {
		users, err := parseTokens(b)
		if err != nil {
			for line := range bytes.Lines(b) {
				if line = bytes.TrimSpace(line); len(line) > 12 && strings.Contains(err.Error(), string(line)) {
					t.Errorf("the error shows a line: %v", err)
				}
			}
		}
		for _, u := range users {
			if u.Name == "" || u.Groups[len(u.Groups)-1] != Authenticated && len(u.Groups) == 1 {
				t.Errorf("%+v", u)
			}
		}
	})
}

// FuzzBearer: a token stands in the header, or in the subprotocol, and is never
// made up.
func FuzzBearer(f *testing.F) {
	f.Add("Bearer x", "")
	f.Add("", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA")
	f.Fuzz(func(t *testing.T, authorization, protocols string) {
		r := &http.Request{Header: http.Header{}}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		if protocols != "" {
			r.Header.Set("Sec-WebSocket-Protocol", protocols)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}
		token, err := bearer(r)
		if token == "" {
			token, err = offered(r)
		}
		if token != "" && err != nil {
			t.Errorf("a token and an error: %v", err)
		}
		if token != "" && protocols == "" && !strings.HasSuffix(authorization, token) && !strings.Contains(authorization, token+" ") {
			t.Errorf("the token %q is not in %q", token, authorization)
		}
	})
}
