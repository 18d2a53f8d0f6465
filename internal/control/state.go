package control

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const jsonLines = "application/x-ndjson"

// state writes all objects of a revision, as YAML documents or as JSON lines.
func (h *handler) state(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	at, err := revision(r, "revision")
	if err != nil {
		return err
	}
	switch format := r.URL.Query().Get("format"); format {
	case "", "yaml":
	case "jsonl":
		return stateLines(w, r, world, at)
	default:
		return badRequest("format=%q: want yaml or jsonl", format)
	}
	out := bufio.NewWriter(w)
	begun := false
	for o, err := range world.Objects(r.Context(), at) {
		if err != nil {
			return abort(begun, err)
		}
		if !begun {
			w.Header().Set("Content-Type", "application/yaml")
			begun = true
		}
		text, err := yaml.JSONToYAML(o.JSON)
		if err != nil {
			return abort(begun, err)
		}
		out.WriteString("---\n# " + o.Collection + " " + o.Key + "\n")
		if _, err := out.Write(text); err != nil {
			return nil // the client is gone
		}
	}
	out.Flush()
	return nil
}

// stateLines writes all objects of a revision as JSON lines, after a line with the revision.
func stateLines(w http.ResponseWriter, r *http.Request, world World, at uint64) error {
	if at == 0 {
		d, err := world.Describe()
		if err != nil {
			return err
		}
		at = d.Revision
	}
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	begun := false
	begin := func() error {
		if begun {
			return nil
		}
		begun = true
		w.Header().Set("Content-Type", jsonLines)
		return encoder.Encode(map[string]uint64{"revision": at})
	}
	for o, err := range world.Objects(r.Context(), at) {
		if err != nil {
			return abort(begun, err)
		}
		line := struct {
			Collection string          `json:"collection"`
			Key        string          `json:"key"`
			Object     json.RawMessage `json:"object"`
		}{o.Collection, o.Key, o.JSON}
		if begin() != nil || encoder.Encode(line) != nil {
			return nil // the client is gone
		}
	}
	if begin() == nil {
		out.Flush()
	}
	return nil
}

// historyLine is a line of the response of history.
type historyLine struct {
	Revision   uint64          `json:"revision"`
	Time       *time.Time      `json:"time,omitempty"`
	Verb       string          `json:"verb"`
	Actor      *Actor          `json:"actor,omitempty"`
	Collection string          `json:"collection"`
	Key        string          `json:"key"`
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
}

func lineOf(c *Change) historyLine {
	l := historyLine{Revision: c.Revision, Verb: c.Verb, Actor: c.Actor, Collection: c.Collection, Key: c.Key, Before: c.Before, After: c.After}
	if !c.Time.IsZero() {
		l.Time = &c.Time
	}
	switch {
	case l.Verb != "":
	case c.Before == nil:
		l.Verb = "create"
	case c.After == nil:
		l.Verb = "delete"
	default:
		l.Verb = "update"
	}
	return l
}

// history writes the changes between two revisions as JSON lines.
func (h *handler) history(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	after, err := revision(r, "after")
	if err != nil {
		return err
	}
	upTo, err := revision(r, "upTo")
	if err != nil {
		return err
	}
	if upTo != 0 && upTo < after {
		return badRequest("upTo=%d is before after=%d", upTo, after)
	}
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	w.Header().Set("Content-Type", jsonLines)
	begun := false
	for c, err := range world.Changes(r.Context(), after, upTo) {
		if err != nil {
			return abort(begun, err)
		}
		begun = true
		if encoder.Encode(lineOf(&c)) != nil {
			return nil // the client is gone
		}
	}
	out.Flush()
	return nil
}

// abort returns the error of a response that has not begun. Otherwise it breaks the connection: a
// client must not take the part for the whole.
func abort(begun bool, err error) error {
	if begun {
		panic(http.ErrAbortHandler)
	}
	return err
}

// revision returns a revision of the query, zero if it is not there.
func revision(r *http.Request, name string) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("%s=%q is no revision: want a decimal number, a resourceVersion", name, text)
	}
	return n, nil
}

// checkQuery returns an error unless the query has the given parameters alone, each at most once. A parameter that is
// ignored would give a client another state than the one that it wants.
func checkQuery(r *http.Request, parameters []string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badRequest("the query cannot be read: %s", err)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case len(parameters) == 0:
			return badRequest("the query parameter %q is unknown: this request takes none", name)
		case !slices.Contains(parameters, name):
			return badRequest("the query parameter %q is unknown: want %s", name, strings.Join(parameters, " or "))
		case len(query[name]) > 1:
			return badRequest("the query has the parameter %q more than once", name)
		}
	}
	return nil
}
