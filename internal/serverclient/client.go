// Package serverclient sends requests to the paths of a Tidemark server outside the Kubernetes API: forks, backups,
// replication.
package serverclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// maxStatus limits the body of a response that is an error.
const maxStatus = 1 << 20

// Client sends requests to a server. It is safe for concurrent use.
type Client struct {
	// HTTP authenticates the client.
	HTTP *http.Client
	// URL is that of the server, without a slash at its end.
	URL string
}

// New returns a client of the server of a configuration. Contexts alone limit its requests.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	at, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{h, strings.TrimSuffix(at.String(), "/")}, nil
}

// Do sends a request to a path, which may have a query. The caller closes the body of the response, whose code is below
// 300. Other codes are a *apierrors.StatusError.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := c.Send(r)
	if failed := (*Error)(nil); errors.As(err, &failed) {
		return nil, &failed.status
	}
	return response, err
}

// Send is Do with a request, whose URL begins with that of the server. An error of the server is an *Error.
func (c *Client) Send(r *http.Request) (*http.Response, error) {
	response, err := c.HTTP.Do(r)
	if err != nil || response.StatusCode < http.StatusMultipleChoices {
		return response, err
	}
	defer response.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	var s metav1.Status
	if json.Unmarshal(b, &s) != nil || s.Message == "" {
		s = metav1.Status{Status: metav1.StatusFailure, Message: fmt.Sprintf("%s responds to %s %s with %s", c.URL, r.Method, strings.TrimPrefix(r.URL.Path, basePath(c.URL)), response.Status)}
		if response.StatusCode == http.StatusNotFound {
			s.Message += ": it does not have this path, or is no tidemark"
		}
	}
	s.Code = int32(response.StatusCode)
	return nil, &Error{apierrors.StatusError{ErrStatus: s}, response.Header}
}

// basePath returns the path of a URL.
func basePath(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Path
}

// Error is a response that is an error: a *apierrors.StatusError with the header of the response.
type Error struct {
	status apierrors.StatusError
	Header http.Header
}

// Error returns the message of the status.
func (e *Error) Error() string { return e.status.Error() }

// Unwrap returns the *apierrors.StatusError.
func (e *Error) Unwrap() error { return &e.status }
