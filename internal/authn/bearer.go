package authn

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// protocol is the prefix of the WebSocket subprotocol that carries a token: browsers cannot set
// headers for WebSockets.
const protocol = "base64url.bearer.authorization.k8s.io."

var (
	errProtocol = errors.New("the WebSocket subprotocol holds no bearer token in base64url")
	errTwice    = errors.New("the WebSocket subprotocols hold more than one bearer token")
)

// bearer returns the request's bearer token, or "". Other schemes than Bearer are ignored, as is
// text after a second space.
func bearer(r *http.Request) (string, error) {
	if header := r.Header["Authorization"]; len(header) > 0 {
		scheme, rest, _ := strings.Cut(header[0], " ")
		if token, _, _ := strings.Cut(rest, " "); token != "" && strings.EqualFold(scheme, "bearer") {
			return token, nil
		}
	}
	if len(r.Header["Sec-Websocket-Protocol"]) > 0 {
		return offered(r.Header["Sec-Websocket-Protocol"])
	}
	return "", nil
}

// Subprotocols returns the subprotocols that a WebSocket client offers, without the one that
// carries its token.
func Subprotocols(r *http.Request) []string {
	var all []string
	for _, header := range r.Header["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(header, ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, protocol) {
				all = append(all, p)
			}
		}
	}
	return all
}

// offered returns the token among the subprotocols that a client offers.
func offered(headers []string) (string, error) {
	token := ""
	for _, header := range headers {
		for p := range strings.SplitSeq(header, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(p), protocol)
			if !ok {
				continue
			}
			if token != "" {
				return "", errTwice
			}
			b, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || len(b) == 0 || !utf8.Valid(b) {
				return "", errProtocol
			}
			token = string(b)
		}
	}
	return token, nil
}
