package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// hookServer is a TLS server on loopback with the webhooks of all scenarios that run. The path
// of a webhook is /SCENARIO/NAME.
type hookServer struct {
	url string
	ca  []byte // PEM
	key *ecdsa.PrivateKey
	crt *x509.Certificate

	server http.Server
	end    chan struct{}

	mu   sync.Mutex
	runs map[string]*hookRun // by the id of the scenario's run
}

// hookRun has the webhooks of one run of a scenario.
type hookRun struct {
	hooks map[string][]hookResponse
	calls []call
	count map[string]int // of calls by hook
}

// call is a request that a webhook received.
type call struct {
	hook   string
	path   string // with the query
	header http.Header
	body   any
}

func newHookServer() (*hookServer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	h := &hookServer{key: key, runs: map[string]*hookRun{}, end: make(chan struct{})}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	if h.crt, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	h.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h.url = "https://" + listener.Addr().String()
	h.server = http.Server{Handler: h, TLSConfig: &tls.Config{GetCertificate: h.certificate}, ErrorLog: log.New(io.Discard, "", 0)}
	go h.server.ServeTLS(listener, "", "")
	return h, nil
}

func (h *hookServer) close() error {
	close(h.end)
	return h.server.Close()
}

// certificate makes a certificate for the name that the client wants to see.
func (h *hookServer) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if hello.ServerName != "" {
		leaf.DNSNames = []string{hello.ServerName}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, h.crt, &h.key.PublicKey, h.key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: h.key}, err
}

// open begins a run; its webhooks can be called from now on.
func (h *hookServer) open(id string, hooks map[string][]hookResponse) *hookRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[id] = &hookRun{hooks: hooks, count: map[string]int{}}
	return h.runs[id]
}

// take returns the calls since the last time.
func (h *hookServer) take(run *hookRun) []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := run.calls
	run.calls = nil
	return calls
}

// receive keeps a call and returns the response to it.
func (h *hookServer) receive(r *http.Request, body any) (hookResponse, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	run := h.runs[id]
	if run == nil {
		return hookResponse{}, false
	}
	if strings.HasPrefix(name, settleHook) { // it is not the scenario's
		return hookResponse{response: map[string]any{"allowed": true, "warnings": []any{name}}}, true
	}
	hookResponses := run.hooks[name]
	if len(hookResponses) == 0 {
		return hookResponse{}, false
	}
	i := min(run.count[name], len(hookResponses)-1)
	run.count[name]++
	path := "/" + name
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	run.calls = append(run.calls, call{name, path, r.Header, body})
	return hookResponses[i], true
}

func (h *hookServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
	if err != nil {
		return
	}
	review := decode(data)
	a, ok := h.receive(r, review)
	if !ok {
		http.NotFound(w, r)
		return
	}
	switch {
	case a.delay < 0:
		select {
		case <-r.Context().Done():
		case <-h.end:
		}
		return
	case a.delay > 0:
		select {
		case <-r.Context().Done():
			return
		case <-time.After(a.delay):
		}
	}
	if a.redirect != "" {
		w.Header().Set("Location", a.redirect)
	}
	body := []byte(a.raw)
	if a.response != nil {
		body = a.review(review)
	} else if uid, err := find(review, ".request.uid"); err == nil && len(uid) == 1 {
		body = bytes.ReplaceAll(body, []byte("{uid}"), []byte(text(uid[0])))
	}
	w.Header().Set("Content-Type", "application/json")
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	w.Write(body)
}

// review is the AdmissionReview with the response. A patch may be a list of operations.
func (a hookResponse) review(asked any) []byte {
	response := map[string]any{}
	for key, value := range a.response {
		response[key] = value
	}
	if list, ok := response["patch"].([]any); ok {
		data, _ := json.Marshal(list)
		response["patch"] = base64.StdEncoding.EncodeToString(data)
		if _, stated := response["patchType"]; !stated {
			response["patchType"] = "JSONPatch"
		}
	}
	review := map[string]any{"kind": "AdmissionReview", "response": response}
	for path, to := range map[string]func(any){
		".request.uid": func(v any) { response["uid"] = v },
		".apiVersion":  func(v any) { review["apiVersion"] = v },
	} {
		if found, err := find(asked, path); err == nil && len(found) == 1 {
			to(found[0])
		}
	}
	data, _ := json.Marshal(review)
	return data
}

// decode returns a JSON document with its numbers as written, or nil.
func decode(data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}
