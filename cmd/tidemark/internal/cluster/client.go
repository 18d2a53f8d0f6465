package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// poll is the pause between two looks at Leases or nodes.
	poll = 200 * time.Millisecond
	// maxResponse limits a response, in bytes. A list of 10,000 nodes has 30 MB.
	maxResponse = 256 << 20
)

// client makes the few requests of this package as an administrator.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string, authority, certificate, key []byte) (*client, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("the authority has no certificate")
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	return &client{url, &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}}, nil
}

// do sends a request, and decodes the response unless into is nil. Codes of 300 and above are a *statusError.
func (c *client) do(ctx context.Context, method, path string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	all, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	switch {
	case err != nil:
		return err
	case response.StatusCode >= http.StatusMultipleChoices:
		var status struct{ Message string }
		json.Unmarshal(all, &status)
		return &statusError{response.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, response.Status, status.Message)}
	case into != nil:
		return json.Unmarshal(all, into)
	}
	return nil
}

// statusError is a response that is an error.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// except returns nil for a response with this code.
func except(code int, err error) error {
	if status := (*statusError)(nil); errors.As(err, &status) && status.code == code {
		return nil
	}
	return err
}

// until returns when the condition holds, or with the error of a response. Other errors are tried again: Tidemark may be
// restarting.
func (c *client) until(ctx context.Context, condition func() (bool, error)) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		ok, err := condition()
		if status := (*statusError)(nil); ok || errors.As(err, &status) && status.code < http.StatusInternalServerError {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leasePath returns the path of the Lease of a component.
func leasePath(name string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/" + name
}

// deleteLease deletes the Lease of a component, if there is one.
func (c *client) deleteLease(ctx context.Context, name string) error {
	return except(http.StatusNotFound, c.do(ctx, http.MethodDelete, leasePath(name), nil, nil))
}

// deleteNodeLeases deletes the Leases of simulated nodes.
func (c *client) deleteNodeLeases(ctx context.Context) error {
	const path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := c.do(ctx, http.MethodGet, path, nil, &list); err != nil {
		return err
	}
	for _, lease := range list.Items {
		if name := lease.Metadata.Name; strings.HasPrefix(name, nodePrefix) {
			if err := except(http.StatusNotFound, c.do(ctx, http.MethodDelete, path+"/"+name, nil, nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

// leads reports whether a component holds its Lease.
func (c *client) leads(ctx context.Context, name string) (bool, error) {
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	err := except(http.StatusNotFound, c.do(ctx, http.MethodGet, leasePath(name), nil, &lease))
	return lease.Spec.HolderIdentity != "", err
}
