package main

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"

	"github.com/tidemark-dev/tidemark"
)

// pastServer returns a server that sends writes to another one, and reads to the instant of the moment in which they come:
// to the path of the newest revision, below /at/.
func pastServer(s *tidemark.Server) (*httptest.Server, error) {
	to, err := url.Parse(s.URL())
	if err != nil {
		return nil, err
	}
	past := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host = r.In.Host
			if r.In.Method == http.MethodGet || r.In.Method == http.MethodHead {
				below := "/at/" + strconv.FormatUint(s.Root().Revision(), 10)
				raw := r.Out.URL.EscapedPath()
				r.Out.URL.Path, r.Out.URL.RawPath = below+r.Out.URL.Path, below+raw
			}
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		},
		FlushInterval: -1, // watches
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
			DisableCompression: true, // the client's own header counts
			ForceAttemptHTTP2:  true,
		},
	})
	past.EnableHTTP2 = true
	past.StartTLS()
	return past, nil
}
