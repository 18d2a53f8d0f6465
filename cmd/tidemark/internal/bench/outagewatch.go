package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"
)

// ask sends a request and returns the body of its response, which is valid until the next one.
func (r *roamer) ask(ctx context.Context, method string, u *url.URL, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, outageRequestTimeout)
	defer cancel()
	return r.client.small(ctx, method, u, body)
}

// outageWatch watches the ConfigMaps as a reflector of client-go does. After an error it
// continues at its last resource version. If the server does not have that any more, it
// lists again.
type outageWatch struct {
	outage *outage
	*roamer
	// revision is that of the last event, bookmark or list.
	revision atomic.Uint64
	// events counts the events of each ConfigMap by its number. listed are those that were
	// listed again.
	events  map[int64]int
	listed  map[int64]bool
	relists int
}

// errExpired means that a watch cannot be continued.
var errExpired = errors.New("the watch got an ERROR event")

// run watches until the context ends. An error means that an event was wrong, not that the
// watch ended.
func (w *outageWatch) run(ctx context.Context) error {
	expired := false
	for ctx.Err() == nil {
		var err error
		if expired {
			err = w.relist(ctx)
		} else {
			err = w.watch(ctx)
		}
		var wrong *wrongEvent
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &wrong):
			return wrong
		case errors.Is(err, errExpired), hasCode(err, http.StatusGone):
			expired = true
			continue
		case err == nil:
			expired = false
			continue
		}
		w.roam(err)
		sleepUntil(ctx, time.Now().Add(outagePause))
	}
	return nil
}

// wrongEvent is an event that breaks the contract of watches.
type wrongEvent struct{ what string }

// Error implements error.
func (e *wrongEvent) Error() string { return e.what }

// watch reads one watch to its end, which is never without an error.
func (w *outageWatch) watch(ctx context.Context) error {
	u := w.at().collection(w.outage.ns, configMapsOf, fmt.Sprintf("watch=1&allowWatchBookmarks=true&resourceVersion=%d", w.revision.Load()))
	resp, err := w.client.send(ctx, http.MethodGet, u, w.client.json, nil)
	if err != nil {
		if ctx.Err() == nil && !hasCode(err, http.StatusGone) {
			w.outage.failure(err)
		}
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		if err := w.event(line); err != nil {
			return err
		}
	}
}

// event counts an event.
func (w *outageWatch) event(line []byte) error {
	if kind, ok := textAfter(line[:min(len(line), 64)], typeKey); ok && string(kind) == errorType {
		return errExpired
	}
	e, err := readJSONEvent(line)
	if err != nil {
		return &wrongEvent{err.Error()}
	}
	if last := w.revision.Load(); e.revision < last || e.revision == last && !e.bookmark {
		return &wrongEvent{fmt.Sprintf("watch %d: an event at %d came after one at %d", w.client.number, e.revision, last)}
	}
	if number, err := strconv.ParseInt(string(e.sent), 10, 64); err == nil && !e.bookmark {
		w.events[number]++
	}
	w.revision.Store(e.revision)
	return nil
}

// relist lists the ConfigMaps again.
func (w *outageWatch) relist(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, outageRequestTimeout)
	defer cancel()
	rv, numbers, err := listOutage(listing, w.client, w.at(), w.outage.ns)
	if err != nil {
		if ctx.Err() == nil {
			w.outage.failure(err)
		}
		return err
	}
	w.relists++
	for number := range numbers {
		w.listed[number] = true
	}
	w.revision.Store(rv)
	return nil
}

// listOutage lists the ConfigMaps, most recent, and returns their numbers.
func listOutage(ctx context.Context, c *client, b *bed, ns string) (rv uint64, numbers map[int64]bool, err error) {
	body, err := c.small(ctx, http.MethodGet, b.collection(ns, configMapsOf, ""), nil)
	if err != nil {
		return 0, nil, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion uint64 `json:"resourceVersion,string"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, nil, fmt.Errorf("the list of ConfigMaps: %w", err)
	}
	numbers = map[int64]bool{}
	for {
		text, ok := textAfter(body, sentKey)
		if !ok {
			return list.Metadata.ResourceVersion, numbers, nil
		}
		if number, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			numbers[number] = true
		}
		body = body[bytes.Index(body, sentKey)+len(sentKey):]
	}
}

// shellTimeout bounds a command.
const shellTimeout = 2 * time.Minute

// shell runs a command to its end. Its background processes continue, also after an interrupt of
// the benchmark.
func shell(ctx context.Context, what, command string) error {
	ctx, cancel := context.WithTimeout(ctx, shellTimeout)
	defer cancel()
	// A pipe would have to be read until the background processes have closed it.
	said, err := os.CreateTemp("", "tidemark-bench-")
	if err != nil {
		return err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = said, said
	ownGroup(cmd)
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(said.Name())
		return fmt.Errorf("the %s command: %w; its last words: %s", what, err, text[max(0, len(text)-500):])
	}
	return nil
}
