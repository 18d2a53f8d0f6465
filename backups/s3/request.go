package s3

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// tries is how often a request is sent to which the service does not respond, or responds with a server error.
	tries = 4
	// firstPause is the pause before the second try; it doubles.
	firstPause = time.Second
	// abortTime is how long the removal of parts may take after the end of the context.
	abortTime = 5 * time.Second
	// responseTime is how long the service may take for one response, with the upload of the body.
	responseTime = 10 * time.Minute
	// maxResponse limits the body of a response.
	maxResponse = 8 << 20
)

// request is a request to the bucket. It can be sent more than once.
type request struct {
	method string
	key    string // empty: to the bucket itself
	query  url.Values
	body   []byte
	result any          // what the body of the response is decoded to; nil: it is not read
	header *http.Header // set to the header of the response; nil: it is not needed
}

// statusError is a response of the service that is an error.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// do sends a request until it succeeds, is refused, or there were too many tries.
func (b *Bucket) do(ctx context.Context, r request) (err error) {
	for try := range tries {
		if try > 0 {
			timer := time.NewTimer(firstPause << (try - 1))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return err
			}
		}
		if err = b.send(ctx, &r); err == nil || ctx.Err() != nil {
			return err
		}
		if refused, ok := err.(*statusError); ok && refused.code < 500 && refused.code != http.StatusTooManyRequests && refused.code != http.StatusRequestTimeout {
			return err
		}
	}
	return err
}

func (b *Bucket) endpoint() string {
	return cmp.Or(strings.TrimSuffix(b.Endpoint, "/"), "https://s3."+b.region()+".amazonaws.com")
}

func (b *Bucket) region() string { return cmp.Or(b.Region, "us-east-1") }

// send sends a request once.
func (b *Bucket) send(ctx context.Context, r *request) error {
	ctx, cancel := context.WithTimeout(ctx, responseTime)
	defer cancel()
	keys, err := b.credentials()
	if err != nil {
		return err
	}
	path := "/" + b.Name
	if r.key != "" {
		path += "/" + r.key
	}
	h, err := http.NewRequestWithContext(ctx, r.method, b.endpoint(), bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	h.URL.Path, h.URL.RawPath = path, escapePath(path)
	h.URL.RawQuery = canonicalQuery(r.query)
	sign(h, r.body, keys, b.region(), time.Now())
	client := cmp.Or(b.Client, http.DefaultClient)
	resp, err := client.Do(h)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return responseError(r, resp, body)
	}
	if r.header != nil {
		*r.header = resp.Header
	}
	if r.result != nil {
		if err := xml.Unmarshal(body, r.result); err != nil {
			return fmt.Errorf("the response of %s to %s is not that of an S3 service: %w", b.endpoint(), r.method, err)
		}
	}
	return nil
}

// responseError describes a response that is an error.
func responseError(r *request, resp *http.Response, body []byte) error {
	var e struct{ Code, Message string }
	text := fmt.Sprintf("%s %s: %s", r.method, resp.Request.URL.Redacted(), resp.Status)
	if xml.Unmarshal(body, &e) == nil && e.Code != "" {
		text += ", " + e.Code + ": " + e.Message
	}
	return &statusError{resp.StatusCode, text}
}
