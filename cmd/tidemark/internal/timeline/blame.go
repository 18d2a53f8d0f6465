package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// BlameOptions are the flags of blame.
type BlameOptions struct {
	At, Field string
	Output    string // json; empty: a table
	Managed   bool   // managed fields and versions, too
}

// Blamed is a field of an object with the change that gave it its value.
type Blamed struct {
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
	// Change has no fields; nil: the value is older than the history.
	Change *changes.Change `json:"change,omitempty"`
	path   changes.Path
}

// Blame prints the fields of an object, with who set each.
func (e *Env) Blame(ctx context.Context, args []string, o BlameOptions) error {
	if o.Output != "" && o.Output != "json" {
		return usagef("--output=%q is not known: want json, or nothing for a table", o.Output)
	}
	at := changes.Instant{Now: true}
	if o.At != "" {
		var err error
		if at, err = changes.ParseInstant(o.At, e.Now); err != nil {
			return usagef("--at: %w", err)
		}
	}
	var field *changes.Path
	if o.Field != "" {
		p, err := changes.ParsePath(o.Field)
		if err != nil {
			return usagef("--field: %w", err)
		}
		field = &p
	}
	at, err := e.pin(ctx, at)
	if err != nil {
		return err
	}
	t, err := e.one(ctx, args, below(at))
	if err != nil {
		return err
	}
	namespace := e.namespaceOf(t.resource)
	object, err := e.get(ctx, at, t.resource, namespace, t.name)
	if err != nil {
		return err
	}
	if object == nil {
		return e.notThere(t, namespace)
	}
	kinds := &schemas{env: e}
	var all []*Blamed
	for _, f := range kinds.fields(ctx, nil, object, o.Managed, below(at)) {
		b := &Blamed{Path: f.Path, Value: f.To}
		if b.path, err = changes.ParsePath(f.Path); err != nil {
			continue // of an object that is one field
		}
		if field == nil || field.Touches([]changes.Field{f}) {
			all = append(all, b)
		}
	}
	q := t.query(namespace)
	q.terms["uid"] = object.text("metadata", "uid")
	if !at.Now {
		q.terms["until"] = at.String()
	}
	if len(all) == 0 && o.Output == "" {
		e.Progress.Done("%s%s has no field %s.", t, inNamespace(namespace), o.Field)
		return nil
	}
	left := append([]*Blamed(nil), all...)
	oldest := ""
	_, err = e.each(ctx, q, func(c *changes.Change) (bool, error) {
		oldest = c.Revision
		rest := left[:0]
		for _, b := range left {
			if !b.explainedBy(c) {
				rest = append(rest, b)
			}
		}
		left = rest
		return len(left) > 0 && !c.Creates(), nil
	})
	e.Progress.Step("")
	if err != nil {
		return err
	}
	if o.Output == "json" {
		if all == nil {
			all = []*Blamed{}
		}
		return encode(e.Out, all, false)
	}
	if len(left) > 0 {
		if first := e.first(ctx); first != "" {
			oldest = first
		}
	}
	return e.printBlame(all, t.resource.Name(), oldest)
}

// explainedBy reports whether a change gave the field its value, and keeps it then.
func (b *Blamed) explainedBy(c *changes.Change) bool {
	for i := range c.Fields {
		f := &c.Fields[i]
		if !related(b.Path, f.Path) || !b.path.Touches(c.Fields[i:i+1]) {
			continue
		}
		copied := *c
		copied.Fields = nil
		b.Change = &copied
		return true
	}
	return false
}

// related reports whether one path may be above the other one: a fast check before the exact one.
func related(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func (e *Env) notThere(t target, namespace string) error {
	in := ""
	if namespace != "" {
		in = " in the namespace " + namespace
	}
	return fmt.Errorf("%s is not there%s; tidemark history %s shows what happened to it", t, in, t)
}

func (e *Env) printBlame(all []*Blamed, resource, oldest string) error {
	t := &table{out: e.Out, width: e.Width}
	t.add([]string{"REVISION", "TIME", "BY", "FIELD", "VALUE"})
	for _, b := range all {
		value := short(b.Value, changes.Confidential(resource, b.Path))
		if b.Change == nil {
			t.add([]string{"-", "before " + orDash(oldest), "-", b.Path, value})
			continue
		}
		t.add([]string{e.paint(yellow, b.Change.Revision), e.clock(b.Change.Time), b.Change.By(), b.Path, value})
	}
	return t.flush()
}
