package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"unicode/utf8"
)

// unreached is an error before there is a connection: it quotes nothing of the other side.
type unreached struct{ error }

// withoutResponse removes the response from an error of net/http, which quotes it if it is not
// HTTP.
func withoutResponse(err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) || failed.Timeout() || quotesNothing(err) || ownWords(failed.Err.Error()) {
		return err
	}
	return &url.Error{Op: failed.Op, URL: failed.URL, Err: errNoHTTP}
}

// Quoteless returns an error of a http.RoundTripper. It replaces one that may quote bytes of the other side, which a client
// must not see: the other side may be a server that only this machine reaches.
func Quoteless(err error) error {
	const plain = "http: server gave HTTP response to HTTPS client"
	var timeout net.Error
	if text := err.Error(); quotesNothing(err) || ownWords(text) || text == plain || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return errNoHTTP
}

var errNoHTTP = errors.New("the response is not HTTP")

// quotesNothing reports whether the type of an error shows that it quotes nothing of the other side.
func quotesNothing(err error) bool {
	var (
		op   *net.OpError
		cert *tls.CertificateVerificationError
		dial unreached
	)
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, context.Canceled} {
		if errors.Is(err, known) {
			return true
		}
	}
	return errors.As(err, &op) || errors.As(err, &cert) || errors.As(err, &dial)
}

// ownWords reports whether an error of net/http or http2client quotes nothing from the peer but numbers.
func ownWords(text string) bool {
	return strings.HasPrefix(text, "tls: ") || strings.HasPrefix(text, "stream error: stream ID ") || strings.HasPrefix(text, "http2: the ")
}

// UnexpectedStatus is the error for a status code that is not a success.
func UnexpectedStatus(code int) error {
	return fmt.Errorf("an error on the server (status code %d) has prevented the request from succeeding", code)
}

// brokenOff returns the error for an incomplete response.
func brokenOff(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.Canceled) {
		return err
	}
	return errors.New("the response ended early")
}

// maxErrorBytes limits the text of an error, which may quote the response.
const maxErrorBytes = 1 << 10

// Cut limits a text that comes from a webhook to 1 KiB.
func Cut[S ~string](text S) string {
	if len(text) <= maxErrorBytes {
		return string(text)
	}
	const more = " ... (cut off)"
	end := maxErrorBytes - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return string(text[:end]) + more
}
