package tidemarktest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Host is a server with worlds. A World uses the process that the tests share, or the Host that it
// names.
//
// Clients reach the Kubernetes API at the URL of a world by the network, with TLS. A Host in the process of the
// test has another way: it is a nethttp.Host.
type Host interface {
	// Control sends a request to the control API: a path that begins with /control/v1, with its query, and a
	// body in JSON, which may be empty. It returns the status code and the body of the response, which the caller
	// closes. The context ends the request, also while the response is read.
	Control(ctx context.Context, method, path string, body []byte) (status int, response io.ReadCloser, err error)
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
	Name         string `json:"name"`
	Content      string `json:"content"`
	WebhooksOnly bool   `json:"webhooksOnly,omitempty"`
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
	Token     string         `json:"token,omitempty"`
}

// createRequest is the body of the creation of a world.
type createRequest struct {
	Parent      string   `json:"parent,omitempty"`
	Revision    uint64   `json:"revision,omitempty"`
	Since       uint64   `json:"since,omitempty"`
	Controllers []string `json:"controllers,omitempty"`
	Lease       string   `json:"lease,omitempty"`
	Seed        uint64   `json:"seed,omitempty"`
	Kubernetes  string   `json:"kubernetesVersion,omitempty"`
}

// applied is an object in the response of apply.
type applied struct{ Kind string }

// A StatusError is a response of the server that is no success.
type StatusError struct {
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Reason is a word for programs, such as NotFound.
	Reason string `json:"reason"`
	// Message describes the error.
	Message string `json:"message"`
}

// Error implements error.
func (e *StatusError) Error() string { return e.Message }

// control is a client of the control API.
type control struct{ host Host }

// maxErrorBytes limits the bytes that are read of a response that is an error.
const maxErrorBytes = 1 << 20

// open sends a request and returns the response's body if it is a success. The caller closes it.
func (c control) open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	code, response, err := c.host.Control(ctx, method, strings.TrimSuffix("/control/v1/"+path, "/"), text)
	if err != nil {
		return nil, fmt.Errorf("the control API of tidemark: %s %s: %w", method, path, err)
	}
	if code/100 == 2 {
		return response, nil
	}
	defer response.Close()
	wrong := &StatusError{Code: code}
	text, err = io.ReadAll(io.LimitReader(response, maxErrorBytes))
	if err != nil || json.Unmarshal(text, wrong) != nil || wrong.Message == "" {
		wrong.Message = fmt.Sprintf("%s %s gets the response %d: %s", method, path, code, text)
	}
	if code == 400 && strings.Contains(wrong.Message, "unknown field") {
		wrong.Message += "; this module and the tidemark program that it runs are of different versions (does TIDEMARK_BINARY name an old one?)"
	}
	return nil, wrong
}

// call sends a request and decodes the response into out, which may be nil.
func (c control) call(ctx context.Context, method, path string, body, out any) error {
	response, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, response)
		return err
	}
	return json.NewDecoder(response).Decode(out)
}

// worldPath returns the path of a world in the control API.
func worldPath(name string, more ...string) string {
	path := "worlds/" + url.PathEscape(name)
	for _, m := range more {
		path += "/" + m
	}
	return path
}
