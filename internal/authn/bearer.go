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
	errAlone    = errors.New("the WebSocket subprotocols hold a bearer token alone: the server cannot choose it")
)

// bearer returns the bearer token of the Authorization header, or "". Other schemes than Bearer are
// ignored, as is text after a second space.
func bearer(r *http.Request) (string, error) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return "", nil
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header[0]), " ")
	token, _, _ := strings.Cut(rest, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", nil
	}
	return token, nil
}

// Warning returns a warning about credentials that were ignored, or "".
func Warning(r *http.Request) string {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return ""
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header[0]), " ")
	if strings.HasPrefix(rest, " ") && strings.EqualFold(scheme, "bearer") {
		return "the provided Authorization header contains extra space before the bearer token, and is ignored"
	}
	return ""
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

// offered returns the token among the subprotocols that a WebSocket client offers, or "".
func offered(r *http.Request) (string, error) {
	headers := r.Header["Sec-Websocket-Protocol"]
	if len(headers) == 0 || !IsWebSocket(r) {
		return "", nil
	}
	token, found, others := "", false, false
	for _, header := range headers {
		for p := range strings.SplitSeq(header, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(p), protocol)
			if !ok {
				others = true
				continue
			}
			if found {
				return "", errTwice
			}
			found = true
			b, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || !utf8.Valid(b) {
				return "", errProtocol
			}
			token = string(b)
		}
	}
	if token != "" && !others {
		return "", errAlone
	}
	return token, nil
}

// IsWebSocket reports whether the request opens a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return has(r.Header["Connection"], "upgrade") && has(r.Header["Upgrade"], "websocket")
}

// has reports whether a header has an element, in any case.
func has(header []string, element string) bool {
	for _, line := range header {
		for e := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(e), element) {
				return true
			}
		}
	}
	return false
}
