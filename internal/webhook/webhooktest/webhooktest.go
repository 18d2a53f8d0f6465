// Package webhooktest has an admission webhook for tests.
package webhooktest

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// Review is a review that a webhook got.
type Review struct {
	admissionv1.AdmissionReview
	// HTTP is the request, whose body is in Body.
	HTTP *http.Request
	Body []byte
}

// Response writes the response to a review.
type Response func(w http.ResponseWriter, r *Review)

// Server is a webhook. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	number int64 // of the process's servers

	mu        sync.Mutex // guards the following
	responses map[string]Response
	reviews   []*Review
}

var started atomic.Int64

// Start starts a webhook that allows everything, and stops it when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, nil)
}

// StartWith is Start with settings of TLS.
func StartWith(t testing.TB, settings *tls.Config) *Server {
	t.Helper()
	s := &Server{number: started.Add(1), responses: map[string]Response{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.EnableHTTP2, s.TLS = true, settings
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// StartQuiet starts a webhook that allows everything at little cost, and keeps no reviews: for
// benchmarks.
func StartQuiet(t testing.TB) *Server {
	t.Helper()
	s := &Server{number: started.Add(1)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(body), `"uid":"`)
		uid, _, _ := strings.Cut(rest, `"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"`+uid+`","allowed":true}}`)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// On sets the response to reviews at a path.
func (s *Server) On(path string, a Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responses[path] = a
}

// Take returns the reviews that came since the last call, in their order.
func (s *Server) Take() []*Review {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.reviews
	s.reviews = nil
	return all
}

// Config returns the clientConfig of a webhook at a path, as JSON. The caBundle of each server begins with a comment of
// its own: connections are shared by address and caBundle, and a server may get the port of one that has just ended,
// whose connection does not look closed yet.
func (s *Server) Config(path string) string {
	ca := fmt.Appendf(nil, "server %d\n", s.number)
	ca = append(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})...)
	return fmt.Sprintf(`{"url":%q,"caBundle":%q}`, s.URL+path, base64.StdEncoding.EncodeToString(ca))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	review := &Review{HTTP: r, Body: body}
	if err := json.Unmarshal(body, &review.AdmissionReview); err != nil || review.Request == nil {
		http.Error(w, "no AdmissionReview: "+string(body), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.reviews = append(s.reviews, review)
	response := s.responses[r.URL.Path]
	s.mu.Unlock()
	if response == nil {
		response = Allow
	}
	response(w, review)
}

// Allow allows the request.
func Allow(w http.ResponseWriter, r *Review) {
	Respond(w, r, admissionv1.AdmissionResponse{Allowed: true})
}

// Respond responds with a review of the version that was sent, and its UID.
func Respond(w http.ResponseWriter, r *Review, a admissionv1.AdmissionResponse) {
	a.UID = r.Request.UID
	made := admissionv1.AdmissionReview{TypeMeta: r.TypeMeta, Response: &a}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(made) // of a response that is not read
}

// Deny refuses the request with a message.
func Deny(message string) Response {
	return JSON(`"allowed":false,"status":{"message":` + quoted(message) + `}`)
}

// Patch allows the request with a JSON patch.
func Patch(patch string) Response {
	return JSON(`"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `"`)
}

// JSON responds with a review of the version that was sent. Members are those of the response besides
// the UID.
func JSON(members string) Response {
	return func(w http.ResponseWriter, r *Review) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":%q,"response":{"uid":%q,%s}}`, r.APIVersion, r.Request.UID, members)
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a string has no error
	return string(b)
}
