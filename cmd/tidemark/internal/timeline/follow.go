package timeline

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

const (
	firstPause = 100 * time.Millisecond // before a watch is made again; it doubles
	mostPause  = 5 * time.Second
)

// follow calls f with each change after a revision, until the context ends. If the connection ends, it connects again, and goes
// on after the last revision that it has seen.
func (e *Env) follow(ctx context.Context, q query, revision string, f func(*changes.Change) error) error {
	pause, isLost := firstPause, false
	connected := func() error {
		if !isLost {
			return nil
		}
		pause, isLost = firstPause, false
		if err := e.sameHistory(ctx, q, revision); err != nil {
			return err
		}
		e.Progress.Done("Connected again: going on after revision %s.", revision)
		return nil
	}
	for {
		last, err := e.watch(ctx, q, revision, connected, f)
		revision = cmp.Or(last, revision)
		switch {
		case ctx.Err() != nil: // the user ended the command
			return nil
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			return fmt.Errorf("the history no longer has the changes after revision %s, so some are missing here; it begins at %s: %w", revision, orDash(e.first(ctx)), err)
		case err != nil && !isTemporary(err):
			return explain(err)
		case err != nil && !isLost:
			isLost = true
			if failed := (*url.Error)(nil); errors.As(err, &failed) {
				err = failed.Err // without the whole query
			}
			e.Progress.Done("The connection to %s is lost: %v. Waiting for the server, to go on after revision %s.", e.Server.URL, err, revision)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if err != nil {
			pause = min(2*pause, mostPause)
		}
	}
}

// watch watches the changes after a revision until the watch ends, and returns the last revision that it mentions. It calls
// connected when the server has accepted it.
func (e *Env) watch(ctx context.Context, q query, revision string, connected func() error, f func(*changes.Change) error) (last string, err error) {
	v := q.values()
	v.Set("watch", "1")
	v.Set("allowWatchBookmarks", "true")
	v.Set("resourceVersion", revision)
	response, err := e.send(ctx, http.MethodGet, q.path()+"?"+v.Encode(), "", nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if err := connected(); err != nil {
		return "", err
	}
	return readEvents(response.Body, f)
}

// sameHistory returns an error if the server has not reached a revision: it has another history then, and a watch would wait
// for that revision.
func (e *Env) sameHistory(ctx context.Context, q query, revision string) error {
	newest, err := e.newest(ctx, q)
	if err != nil {
		return err
	}
	if compareRevisions(newest, revision) < 0 {
		return otherHistory(fmt.Sprintf("the server has another history now: its newest revision is %s, and the last one seen is %s", newest, revision))
	}
	return nil
}

// otherHistory is the error of a server whose revisions began anew.
type otherHistory string

// Error implements error.
func (e otherHistory) Error() string { return string(e) }

// outputError is an error of the output of a command.
type outputError struct{ error }

// Unwrap returns the error.
func (e outputError) Unwrap() error { return e.error }

// isTemporary reports whether a watch that failed may be made again: the server cannot be reached, or has no capacity.
func isTemporary(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return !errors.As(err, new(outputError)) && !errors.As(err, new(otherHistory)) && !errors.As(err, new(*tls.CertificateVerificationError))
}

// watchEvent is an event of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// readEvents reads a watch until it ends, and returns the last revision that it mentions. An error of f is an outputError.
func readEvents(body io.Reader, f func(*changes.Change) error) (revision string, err error) {
	d := json.NewDecoder(body)
	for {
		var event watchEvent
		switch err := d.Decode(&event); {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return revision, nil
		case err != nil:
			return revision, err
		}
		if event.Type == "ERROR" {
			var status apierrors.StatusError
			if err := json.Unmarshal(event.Object, &status.ErrStatus); err != nil {
				return revision, err
			}
			return revision, &status
		}
		var c changes.Change
		if err := json.Unmarshal(event.Object, &c); err != nil {
			return revision, err
		}
		if c.Metadata.ResourceVersion != "" {
			revision = c.Metadata.ResourceVersion
		}
		if event.Type == "BOOKMARK" {
			continue
		}
		if err := f(&c); err != nil {
			return revision, outputError{err}
		}
	}
}
