// Package timeline has the commands about the past of objects: history, diff, blame, undelete, restore. They are
// clients of the API of a server, and know it by its paths and messages alone.
package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
)

// Env has the server, the output and the settings of the commands. One command uses it.
type Env struct {
	Server    *serverclient.Client
	UserAgent string
	// Namespace is that of the kubeconfig's context or of the flag.
	Namespace string
	// Now is the present in the zone of the user.
	Now time.Time
	Out io.Writer
	// Width is that of the terminal in characters. Longer rows of tables are folded. Zero: a row is one line.
	Width int
	// Color is true if Out shows colours.
	Color    bool
	Progress progress.Progress

	found map[string][]Resource // by the path below which they are served
}

// UsageError is a mistake on the command line.
type UsageError struct{ error }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.error }

func usagef(format string, a ...any) error { return UsageError{fmt.Errorf(format, a...)} }

// pageSize is how many changes a request asks for.
const pageSize = 500

// send sends a request to a path of the server.
func (e *Env) send(ctx context.Context, method, path, accept string, body []byte) (*http.Response, error) {
	address := e.Server.URL
	if strings.HasPrefix(path, changes.AtPrefix) {
		address, _ = Outside(address) // an instant is one of the server, also inside tidemark at
	}
	r, err := http.NewRequestWithContext(ctx, method, address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if accept == "" {
		accept = "application/json"
	}
	r.Header.Set("Accept", accept)
	if e.UserAgent != "" {
		r.Header.Set("User-Agent", e.UserAgent)
	}
	return e.Server.Send(r)
}

// Outside returns the address of a server without the path of an instant, and that instant as in the path; empty: it had none.
func Outside(address string) (server, instant string) {
	address = strings.TrimSuffix(address, "/")
	if i := strings.LastIndex(address, changes.AtPrefix); i >= 0 {
		if rest := address[i+len(changes.AtPrefix):]; rest != "" && !strings.Contains(rest, "/") {
			return address[:i], rest
		}
	}
	return address, ""
}

// writable returns an error if the server is the state of an instant: inside tidemark at.
func (e *Env) writable() error {
	if _, instant := Outside(e.Server.URL); instant != "" {
		return fmt.Errorf("%s is the state of an instant, which cannot be changed: run the command without tidemark at", e.Server.URL)
	}
	return nil
}

// fetch reads a whole response.
func (e *Env) fetch(ctx context.Context, path, accept string) ([]byte, http.Header, error) {
	response, err := e.send(ctx, http.MethodGet, path, accept, nil)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return body, response.Header, err
}

// write sends an object, and returns the one of the response.
func (e *Env) write(ctx context.Context, method, path string, object *Object) (*Object, error) {
	body, err := json.Marshal(object.tree)
	if err != nil {
		return nil, err
	}
	response, err := e.send(ctx, method, path, "", body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return parseObject(text)
}

// below returns the path below which a server serves an instant.
func below(i changes.Instant) string {
	if i.Now {
		return ""
	}
	return changes.AtPrefix + i.String()
}

// pin returns the instant as a revision, so that several requests see the same state. The present stays. It is an error if
// the server has no such state.
func (e *Env) pin(ctx context.Context, i changes.Instant) (changes.Instant, error) {
	if i.Now {
		return i, nil
	}
	_, header, err := e.fetch(ctx, below(i)+"/api", "")
	if err != nil {
		return i, err
	}
	n, err := strconv.ParseUint(header.Get(changes.RevisionHeader), 10, 64)
	if err != nil {
		return i, fmt.Errorf("%s is no tidemark with history: its response has no header %s", e.Server.URL, changes.RevisionHeader)
	}
	return changes.Instant{Revision: n}, nil
}

// Pin returns the revision of an instant; zero: it is the present.
func (e *Env) Pin(ctx context.Context, i changes.Instant) (uint64, error) {
	i, err := e.pin(ctx, i)
	return i.Revision, err
}

// first returns the first revision whose state is left; empty: it is not known.
func (e *Env) first(ctx context.Context) string {
	_, _, err := e.fetch(ctx, changes.AtPrefix+"1/api", "")
	if err == nil {
		return "1"
	}
	var failed *serverclient.Error
	if errors.As(err, &failed) {
		return failed.Header.Get(changes.FirstHeader)
	}
	return ""
}

// query selects changes.
type query struct {
	namespace string // empty: everywhere
	labels    string
	terms     map[string]string // of the field selector
	not       []string          // excluded resources
	requests  bool              // without the changes that the server made by itself
}

func (q *query) path() string {
	path := changes.Prefix
	if q.namespace != "" {
		path += "/namespaces/" + url.PathEscape(q.namespace)
	}
	return path + "/" + changes.Resource
}

func (q *query) values() url.Values {
	v := url.Values{}
	var terms []fields.Selector
	for key, value := range q.terms {
		if value != "" {
			terms = append(terms, fields.OneTermEqualSelector(key, value))
		}
	}
	for _, resource := range q.not {
		terms = append(terms, fields.OneTermNotEqualSelector(changes.SelectResource, resource))
	}
	if q.requests {
		terms = append(terms, fields.OneTermEqualSelector(changes.SelectLoop, ""))
	}
	if len(terms) > 0 {
		v.Set("fieldSelector", fields.AndSelectors(terms...).String())
	}
	if q.labels != "" {
		v.Set("labelSelector", q.labels)
	}
	return v
}

// with returns the query with another term.
func (q query) with(key, value string) query {
	terms := map[string]string{key: value}
	for k, v := range q.terms {
		if k != key {
			terms[k] = v
		}
	}
	q.terms = terms
	return q
}

// each calls f with each change, until it returns false. It returns the resource version of the list.
func (e *Env) each(ctx context.Context, q query, f func(*changes.Change) (bool, error)) (revision string, err error) {
	v := q.values()
	v.Set("limit", strconv.Itoa(pageSize))
	seen := 0
	for {
		text, _, err := e.fetch(ctx, q.path()+"?"+v.Encode(), "")
		if err != nil {
			return "", explain(err)
		}
		var page changes.ChangeList
		if err := json.Unmarshal(text, &page); err != nil {
			return "", fmt.Errorf("the list of changes of %s: %w", e.Server.URL, err)
		}
		if revision == "" {
			revision = page.Metadata.ResourceVersion
		}
		for i := range page.Items {
			if more, err := f(&page.Items[i]); !more || err != nil {
				return revision, err
			}
		}
		if page.Metadata.Continue == "" {
			return revision, nil
		}
		seen += len(page.Items)
		e.Progress.Step("%d changes read", seen)
		v.Set("continue", page.Metadata.Continue)
	}
}

// explain adds to the error of a server that is no tidemark, or an older one.
func explain(err error) error {
	if apierrors.IsNotFound(err) && !strings.Contains(err.Error(), `"`) {
		return fmt.Errorf("the server has no history: it is no tidemark, or one before %s: %w", changes.APIVersion, err)
	}
	return err
}
