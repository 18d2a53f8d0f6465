package tidemarktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Host is a server with worlds. A World uses the process that the tests share, or the Host that it
// names.
type Host interface {
	// Control carries requests to the control API. Only their paths count, which begin with
	// /control/v1.
	Control() http.RoundTripper
	// API carries requests to the Kubernetes API of any world, by the URL of the world. Nil: the
	// network does, with TLS.
	API() http.RoundTripper
}

// worldInfo is a world as the control API describes it.
type worldInfo struct {
	Name       string `json:"name"`
	Revision   uint64 `json:"revision"`
	URL        string `json:"url"`
	ServerName string `json:"serverName"`
	CA         string `json:"ca"`
	Token      string `json:"token"`
	Kubeconfig string `json:"kubeconfig"`
}

// credentials are those of a user.
type credentials struct {
	Token      string `json:"token"`
	Kubeconfig string `json:"kubeconfig"`
}

// manifest is a file with objects.
type manifest struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// webhookTarget is where webhooks that name a Service are called instead.
type webhookTarget struct {
	URL      string `json:"url"`
	CABundle string `json:"caBundle"`
}

// applyRequest is the body of apply.
type applyRequest struct {
	Manifests []manifest     `json:"manifests"`
	Webhooks  *webhookTarget `json:"webhooks,omitempty"`
}

// createRequest is the body of the creation of a world.
type createRequest struct {
	Parent      string   `json:"parent,omitempty"`
	Revision    uint64   `json:"revision,omitempty"`
	Since       uint64   `json:"since,omitempty"`
	Controllers []string `json:"controllers,omitempty"`
	Lease       string   `json:"lease,omitempty"`
	Seed        uint64   `json:"seed,omitempty"`
}

// A StatusError is an answer of the server that is no success.
type StatusError struct {
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Reason is a word for programs, such as NotFound.
	Reason string `json:"reason"`
	// Message says what is wrong.
	Message string `json:"message"`
}

// Error implements error.
func (e *StatusError) Error() string { return e.Message }

// control is a client of the control API.
type control struct{ transport http.RoundTripper }

// open sends a request and returns the answer's body if it is a success. The caller closes it.
func (c control) open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	text := []byte{}
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://control/control/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: c.transport}).Do(r)
	if err != nil {
		return nil, fmt.Errorf("the control API of tidemark: %w", err)
	}
	if answer.StatusCode/100 == 2 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	wrong := &StatusError{Code: answer.StatusCode}
	text, err = io.ReadAll(answer.Body)
	if err != nil || json.Unmarshal(text, wrong) != nil || wrong.Message == "" {
		wrong.Message = fmt.Sprintf("%s %s is answered %s: %s", method, path, answer.Status, text)
	}
	return nil, wrong
}

// call sends a request and decodes the answer into out, which may be nil.
func (c control) call(ctx context.Context, method, path string, body, out any) error {
	answer, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, answer)
		return err
	}
	return json.NewDecoder(answer).Decode(out)
}

// worldPath returns the path of a world in the control API.
func worldPath(name string, more ...string) string {
	path := "worlds/" + url.PathEscape(name)
	for _, m := range more {
		path += "/" + m
	}
	return path
}
