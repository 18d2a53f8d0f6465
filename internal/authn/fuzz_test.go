package authn

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// FuzzTokens checks that an error about a token file shows none of its text, and that users have a
// name and the group of authenticated users.
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

// FuzzBearer checks that a token is in the header or in the subprotocol.
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

// FuzzProxy checks that a user of a front proxy has a name, and no other groups than those of the
// headers.
func FuzzProxy(f *testing.F) {
	f.Add("joe", "system:masters", "Acme.com%2fFoo", "x")
	f.Add("", "", "%zz", "")
	f.Fuzz(func(t *testing.T, name, group, key, value string) {
		p := &Proxy{UsernameHeaders: []string{"X-Remote-User"}, GroupHeaders: []string{"X-Remote-Group"}, ExtraPrefixes: []string{"X-Remote-Extra-"}}
		u := p.user(http.Header{"X-Remote-User": {name}, "X-Remote-Group": {group}, "X-Remote-Extra-" + key: {value}})
		switch {
		case (u == nil) != (name == ""):
			t.Fatalf("the name %q makes %+v", name, u)
		case u == nil:
		case u.Name != name || len(u.Extra) != 1 || len(u.Groups) > 2:
			t.Errorf("%+v", u)
		case len(u.Groups) == 2 && (u.Groups[0] != group || u.Groups[1] != Authenticated):
			t.Errorf("groups %q of %q", u.Groups, group)
		}
	})
}

// FuzzBootstrap: the parts of a bootstrap token have their lengths and characters, and groups that a
// Secret adds are below system:bootstrappers.
func FuzzBootstrap(f *testing.F) {
	f.Add("abcdef.0123456789abcdef", "system:bootstrappers:a,system:bootstrappers:b")
	f.Add("......................", "system:masters")
	f.Fuzz(func(t *testing.T, token, extra string) {
		if id, secret, ok := cutBootstrap(token); ok && (id+"."+secret != token || len(id) != 6 || len(secret) != 16 || strings.ContainsAny(token, "/\x00 ")) {
			t.Errorf("%q is %q and %q", token, id, secret)
		}
		groups, ok := bootstrapGroups(extra)
		for _, g := range groups {
			if !ok || g != bootstrappers && !strings.HasPrefix(g, bootstrappers+":") {
				t.Errorf("%q has the group %q", extra, g)
			}
		}
	})
}
