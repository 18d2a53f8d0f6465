package tidemarktest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Actor is who made a change, as far as the server knows.
type Actor struct {
	User         string `json:"user"`
	UserAgent    string `json:"userAgent"`
	FieldManager string `json:"fieldManager"`
	Subresource  string `json:"subresource"`
	// Loop is the part of the server that made the change without a request; empty: a client made it.
	Loop string `json:"loop"`
	// Impersonator is the user who impersonated User. Empty: User sent the request.
	Impersonator string `json:"impersonator"`
}

// String returns the most telling name: the loop, or the field manager and the user.
func (a *Actor) String() string {
	switch {
	case a == nil:
		return "unknown"
	case a.Loop != "":
		return "the server's " + a.Loop
	case a.FieldManager != "":
		return a.FieldManager + " (" + a.User + ")"
	}
	return a.User
}

// describe returns String with the program of the user agent, if that is another name.
func (a *Actor) describe() string {
	text := a.String()
	if a == nil {
		return text
	}
	if program, _, _ := strings.Cut(a.UserAgent, " "); program != "" && !strings.HasPrefix(text, program) {
		text += " with the user agent " + program
	}
	return text
}

// Change is one change of one object.
type Change struct {
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
	// Verb is that of the request: create, update, patch, apply, delete or deletecollection.
	Verb string `json:"verb"`
	// Actor is nil if the server does not know it.
	Actor *Actor `json:"actor"`
	// Collection is the resource and its group: "pods", "deployments.apps".
	Collection string `json:"collection"`
	// Key is the name, after the namespace and a slash if there is one.
	Key string `json:"key"`
	// Before is nil if the change created the object, After if it removed the object. Both are JSON.
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// String describes the change: "revision 12: create pods default/web by web-operator (system:admin)".
func (c Change) String() string {
	return fmt.Sprintf("revision %d: %s by %s", c.Revision, c.what(), c.Actor)
}

// what returns the verb, the resource with the subresource, and the key.
func (c *Change) what() string {
	resource := c.Collection
	if c.Actor != nil && c.Actor.Subresource != "" {
		resource += "/" + c.Actor.Subresource
	}
	return c.Verb + " " + resource + " " + c.Key
}

// A Match selects changes. Empty fields select all.
type Match struct {
	// Verb is that of the request.
	Verb string
	// Resource is a resource, with its group or without: "deployments.apps", "deployments". With a subresource, as
	// in "pods/status", it selects the changes by requests for that; without one, all changes.
	Resource string
	// Name is a name, or a namespace, a slash and a name.
	Name string
	// By is a part of the user, the user agent, the field manager or the server's loop.
	By string
}

// matches reports whether a change is selected.
func (m Match) matches(c *Change) bool {
	resource, subresource, isSub := strings.Cut(m.Resource, "/")
	return (m.Verb == "" || m.Verb == c.Verb) &&
		(resource == "" || resource == c.Collection || strings.HasPrefix(c.Collection, resource+".")) &&
		(!isSub || c.Actor != nil && c.Actor.Subresource == subresource) &&
		(m.Name == "" || m.Name == c.Key || strings.HasSuffix(c.Key, "/"+m.Name)) &&
		(m.By == "" || c.Actor.has(m.By))
}

// has reports whether one of the actor's names contains the text.
func (a *Actor) has(text string) bool {
	return a != nil && slices.ContainsFunc([]string{a.User, a.UserAgent, a.FieldManager, a.Loop}, func(name string) bool {
		return strings.Contains(name, text)
	})
}

// String describes the match in messages.
func (m Match) String() string {
	words := []string{"a change"}
	if m.Verb != "" {
		words[0] = m.Verb
	}
	if m.Resource != "" || m.Name != "" {
		words = append(words, "of", strings.TrimSpace(m.Resource+" "+m.Name))
	}
	if m.By != "" {
		words = append(words, "by", m.By)
	}
	return strings.Join(words, " ")
}

// calls returns the calls of methods of Changes that select the same.
func (m Match) calls() (all string) {
	if m.Verb != "" {
		all += fmt.Sprintf(".Verb(%q)", m.Verb)
	}
	if m.Resource != "" || m.Name != "" {
		all += fmt.Sprintf(".Of(%q, %q)", m.Resource, m.Name)
	}
	if m.By != "" {
		all += fmt.Sprintf(".By(%q)", m.By)
	}
	return all
}

// Changes are changes of an Env, in their order. The methods return new Changes, or fail the test.
type Changes struct {
	t    TB
	env  *Env
	all  []Change
	list []Change // those of all that are selected

	calls  string   // of the methods that have selected them: `.By("web-operator")`
	absent []string // selected actors that have no change in all
}

// Changes returns the changes since the Env was created, by all actors. It does not wait: call
// Settle before.
func (e *Env) Changes(t TB) Changes {
	t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	list, err := e.history(ctx, e.world.Revision, 0)
	if err != nil {
		t.Fatalf("tidemarktest: the history: %v", err)
	}
	return Changes{t: t, env: e, all: list, list: list}
}

// history reads the changes with after < revision <= upTo; upTo zero: up to the newest.
func (e *Env) history(ctx context.Context, after, upTo uint64) ([]Change, error) {
	response, err := e.openHistory(ctx, after, upTo)
	if err != nil {
		return nil, err
	}
	defer response.Close()
	var list []Change
	for d := json.NewDecoder(response); ; {
		var c Change
		if err := d.Decode(&c); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
}

// openHistory returns the changes with after < revision <= upTo as JSON lines; upTo zero: up to the newest. The
// caller closes them.
func (e *Env) openHistory(ctx context.Context, after, upTo uint64) (io.ReadCloser, error) {
	path := fmt.Sprintf("%s?after=%d", worldPath(e.world.Name, "history"), after)
	if upTo != 0 {
		path += fmt.Sprintf("&upTo=%d", upTo)
	}
	response, err := e.session.control.open(ctx, "GET", path, nil)
	if gone, ok := err.(*StatusError); ok && gone.Code == 410 {
		return nil, fmt.Errorf("%w. A server keeps an hour of history, and half of --fork-max-bytes (64Mi by default) for each test: a test that writes a lot, such as one with a hot loop, loses the oldest changes. For a test that lasts longer, also in a bubble, set History.Retention of the tidemark.Server in World.Host", err)
	}
	return response, err
}

// All returns the changes.
func (c Changes) All() []Change { return slices.Clone(c.list) }

// By selects the changes of an actor: a part of its user, user agent, field manager or loop.
func (c Changes) By(actor string) Changes {
	c.t.Helper()
	return c.Match(Match{By: actor})
}

// Of selects the changes of objects: of a resource, with its group or without, and a name, with its
// namespace or without. Empty strings select all.
func (c Changes) Of(resource, name string) Changes {
	c.t.Helper()
	return c.Match(Match{Resource: resource, Name: name})
}

// Verb selects the changes by the verb of the request.
func (c Changes) Verb(verb string) Changes {
	c.t.Helper()
	return c.Match(Match{Verb: verb})
}

// Match selects changes. It fails the test if the verb is not one of Change.Verb, or if the server does not have the
// resource.
func (c Changes) Match(m Match) Changes {
	c.t.Helper()
	if err := c.checkMatch(m); err != nil {
		c.t.Fatalf("tidemarktest: %s: %v", m, err)
	}
	if m.By != "" && !slices.ContainsFunc(c.all, func(change Change) bool { return change.Actor.has(m.By) }) {
		c.absent = append(slices.Clone(c.absent), m.By)
	}
	return c.where(m.calls(), func(change Change) bool { return m.matches(&change) })
}

// checkMatch returns an error if nothing can ever match, as with a word that is misspelled.
func (c Changes) checkMatch(m Match) error {
	verbs := []string{"create", "update", "patch", "apply", "delete", "deletecollection"}
	if m.Verb != "" && !slices.Contains(verbs, m.Verb) {
		return fmt.Errorf("the verb %q is not one of %s", m.Verb, strings.Join(verbs, ", "))
	}
	of := Match{Resource: m.Resource}
	if m.Resource == "" || slices.ContainsFunc(c.all, func(change Change) bool { return of.matches(&change) }) {
		return nil
	}
	ctx, cancel := callContext()
	defer cancel()
	return c.env.checkResource(ctx, m.Resource)
}

// checkResource returns an error if the server does not have a resource: "pods", "deployments.apps",
// "pods/status", "pods/*". An empty one is all.
func (e *Env) checkResource(ctx context.Context, resource string) error {
	if resource == "" {
		return nil
	}
	var all struct{ Resources, Subresources []string }
	if err := e.session.control.call(ctx, "GET", worldPath(e.world.Name, "resources"), nil, &all); err != nil {
		return err
	}
	name, subresource, isSub := strings.Cut(resource, "/")
	of := Match{Resource: name}
	served := func(name string) bool { return of.matches(&Change{Collection: name}) }
	if !slices.ContainsFunc(all.Resources, served) {
		return fmt.Errorf("the server has no resource %q: want a name such as \"pods\" or \"deployments.apps\"", name)
	}
	if !isSub || subresource == "*" {
		return nil
	}
	var subresources []string
	for _, path := range all.Subresources {
		if name, sub, _ := strings.Cut(path, "/"); served(name) {
			subresources = append(subresources, sub)
		}
	}
	if !slices.Contains(subresources, subresource) {
		return fmt.Errorf("%q has no subresource %q: it has %q", name, subresource, subresources)
	}
	return nil
}

// Where selects the changes for which a function returns true; nil: all of them.
func (c Changes) Where(selected func(Change) bool) Changes {
	if selected == nil {
		return c
	}
	return c.where(".Where(...)", selected)
}

func (c Changes) where(calls string, selected func(Change) bool) Changes {
	c.calls += calls
	c.list = slices.DeleteFunc(slices.Clone(c.list), func(change Change) bool { return !selected(change) })
	return c
}
