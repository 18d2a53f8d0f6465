package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// HistoryOptions are the flags of history.
type HistoryOptions struct {
	All             bool // of all namespaces
	Labels          string
	Since, Until    string
	By, Verb, Field string
	Exclude         []string // resources
	ExcludeServer   bool     // no changes that the server made by itself
	Output          string   // wide, yaml, json, name; empty: a table
	Watch, Reverse  bool
	Limit           int // zero: no limit
}

// Outputs are the formats of history.
var Outputs = []string{"wide", "yaml", "json", "name"}

// Verbs are those of changes.
var Verbs = []string{"create", "update", "patch", "apply", "delete", "deletecollection"}

func (o *HistoryOptions) check() error {
	switch {
	case o.Output != "" && !slices.Contains(Outputs, o.Output):
		return usagef("--output=%q is not known: want wide, yaml, json or name, or nothing for a table", o.Output)
	case o.Verb != "" && !slices.Contains(Verbs, o.Verb):
		return usagef("--verb=%q is not known: want create, update, patch, apply, delete or deletecollection", o.Verb)
	case o.Limit < 0:
		return usagef("--limit=%d: want a number above zero", o.Limit)
	case o.Watch && o.Until != "":
		return usagef("--watch and --until exclude each other")
	case o.Watch && o.Output == "yaml":
		return usagef("--watch has no YAML: want -o json, which prints one object a line")
	}
	if _, err := labels.Parse(o.Labels); err != nil {
		return usagef("--selector=%s: %w", o.Labels, err)
	}
	return nil
}

// terms adds the flags that the server understands to a query.
func (o *HistoryOptions) terms(q *query, now time.Time) error {
	q.labels = o.Labels
	if q.terms == nil {
		q.terms = map[string]string{}
	}
	q.terms["user"], q.terms["verb"], q.terms["field"] = o.By, o.Verb, o.Field
	if o.Since != "" {
		i, err := changes.ParseSince(o.Since, now)
		if err != nil {
			return usagef("--since: %w", err)
		}
		q.terms["since"] = i.String()
	}
	if o.Until != "" {
		i, err := changes.ParseInstant(o.Until, now)
		if err != nil {
			return usagef("--until: %w", err)
		}
		if !i.Now {
			q.terms["until"] = i.String()
		}
	}
	if o.Watch || o.Reverse {
		q.terms["order"] = changes.OldestFirst
	}
	return nil
}

// History prints the changes of objects.
func (e *Env) History(ctx context.Context, args []string, o HistoryOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	var field *changes.Path
	if o.Field != "" {
		p, err := changes.ParsePath(o.Field)
		if err != nil {
			return usagef("--field: %w", err)
		}
		o.Field, field = p.String(), &p
	}
	all, err := e.targets(ctx, args, "")
	if err != nil {
		return err
	}
	if len(all) == 0 {
		all = []target{{}}
	}
	excluded, err := e.excluded(ctx, o.Exclude)
	if err != nil {
		return err
	}
	if o.Watch && len(all) > 1 {
		return usagef("--watch is for one object or kind, a namespace, or everything")
	}
	namespace := e.Namespace
	if o.All {
		namespace = ""
	}
	if i, err := changes.ParseSince(o.Since, e.Now); err == nil && i.Now { // by the server's order, not by the clock of this machine
		if o.Since, err = e.newest(ctx, all[0].query(namespace)); err != nil {
			return err
		}
	}
	var queries []query
	for _, t := range all {
		q := t.query(namespace)
		q.not, q.requests = excluded, o.ExcludeServer
		if err := o.terms(&q, e.Now); err != nil {
			return err
		}
		queries = append(queries, q)
	}
	one := len(all) == 1 && all[0].name != "" && !o.All
	p := e.printer(o, one, field)
	revision, without, err := e.list(ctx, queries, o, p)
	if err != nil {
		return err
	}
	if o.Output == "" || o.Output == "wide" {
		for _, i := range without {
			if err := e.explainNone(ctx, all[i], namespace, o); err != nil {
				return err
			}
		}
	}
	if !o.Watch {
		return nil
	}
	return e.follow(ctx, queries[0].watched(), revision, func(c *changes.Change) error {
		if err := p.print(c); err != nil {
			return err
		}
		return p.flush()
	})
}

// excluded returns the names of the resources that --exclude names, as kubectl knows them.
func (e *Env) excluded(ctx context.Context, kinds []string) (names []string, err error) {
	for _, kind := range kinds {
		if kind == "" || strings.ContainsAny(kind, "/ ") {
			return nil, usagef("--exclude=%q: want resources, such as leases,events", kind)
		}
		all, err := e.targets(ctx, []string{kind}, "")
		if err != nil {
			return nil, fmt.Errorf("--exclude=%s: %w", kind, err)
		}
		for _, t := range all {
			names = append(names, t.resource.Name())
		}
	}
	return names, nil
}

// newest returns the newest revision, as one who may send the query gets it.
func (e *Env) newest(ctx context.Context, q query) (revision string, err error) {
	return e.each(ctx, q, func(*changes.Change) (bool, error) { return false, nil })
}

// watched returns a query without the terms that only lists have.
func (q query) watched() query { return q.with("order", "").with("since", "") }

// list prints the changes that there are. It returns the revision after which a watch goes on, and the indexes of the queries
// without changes.
func (e *Env) list(ctx context.Context, queries []query, o HistoryOptions, p printer) (revision string, without []int, err error) {
	done := func(err error) (string, []int, error) {
		e.Progress.Step("")
		if err == nil {
			err = p.end(revision)
		}
		return revision, without, err
	}
	left := o.Limit
	if o.Limit == 0 {
		left = -1
	}
	if len(queries) == 1 {
		without = []int{0}
		revision, err = e.each(ctx, queries[0], func(c *changes.Change) (bool, error) {
			without = nil
			if left == 0 {
				return false, nil
			}
			left--
			return true, p.print(c)
		})
		return done(err)
	}
	var merged []changes.Change
	for i, q := range queries {
		n := 0
		r, err := e.each(ctx, q, func(c *changes.Change) (bool, error) {
			merged = append(merged, *c)
			n++
			return n != o.Limit, nil
		})
		if err != nil {
			return done(err)
		}
		if n == 0 {
			without = append(without, i)
		}
		if revision == "" {
			revision = r
		}
	}
	slices.SortStableFunc(merged, func(a, b changes.Change) int {
		n := compareRevisions(a.Revision, b.Revision)
		if !o.Reverse {
			n = -n
		}
		return n
	})
	for i := range merged {
		if left == 0 {
			break
		}
		left--
		if err := p.print(&merged[i]); err != nil {
			return done(err)
		}
	}
	return done(nil)
}

// explainNone says why a query of a target has no changes.
func (e *Env) explainNone(ctx context.Context, t target, namespace string, o HistoryOptions) error {
	if t.resource != nil && !t.resource.Namespaced {
		namespace = ""
	}
	where := inNamespace(namespace)
	switch {
	case t.resource == nil:
		e.Progress.Done("No changes found%s%s; the history begins at revision %s%s.", where, o.selected(), orDash(e.first(ctx)), e.noNamespace(ctx, namespace))
		return nil
	case t.name == "":
		e.Progress.Done("No changes of %s found%s%s; the history begins at revision %s%s%s.", t.resource.Name(), where, o.selected(), orDash(e.first(ctx)), ofUnknown(t.resource), e.noNamespace(ctx, namespace))
		return nil
	}
	any, err := e.some(ctx, t.query(namespace))
	switch {
	case err != nil:
		return err
	case any != nil:
		e.Progress.Done("No changes found: %s%s has some, but none that the flags select%s.", t, where, o.hint())
		return nil
	}
	first := orDash(e.first(ctx))
	if t.resource.Version != "" {
		if o, err := e.get(ctx, changes.Instant{Now: true}, t.resource, namespace, t.name); err == nil && o != nil {
			e.Progress.Done("No changes found: %s%s is unchanged since the history begins, at revision %s.", t, where, first)
			return nil
		}
	}
	hint := ofUnknown(t.resource)
	if namespace != "" {
		// Who may not read all namespaces gets no hint.
		if other, err := e.some(ctx, t.query("")); err == nil && other != nil {
			hint += "; there is one in the namespace " + other.Namespace
		}
	}
	e.Progress.Done("No changes found: no revision has %s%s; the history begins at revision %s%s.", t, where, first, hint)
	return nil
}

// selected returns a part of a message if flags select changes.
func (o *HistoryOptions) selected() string {
	if o.Since+o.Until+o.By+o.Verb+o.Field+o.Labels == "" && len(o.Exclude) == 0 && !o.ExcludeServer {
		return ""
	}
	return " that the flags select" + o.hint()
}

// hint returns a part of a message if the field looks like the name of a member, such as image.
func (o *HistoryOptions) hint() string {
	if o.Field == "" || strings.ContainsAny(o.Field, ".[") {
		return ""
	}
	return fmt.Sprintf(" (--field=%s is a field at the top of the object; others are paths, such as spec.replicas)", o.Field)
}

// noNamespace returns the end of a message about a namespace that is not there.
func (e *Env) noNamespace(ctx context.Context, name string) string {
	if name == "" {
		return ""
	}
	if _, _, err := e.fetch(ctx, "/api/v1/namespaces/"+url.PathEscape(name), ""); apierrors.IsNotFound(err) {
		return fmt.Sprintf("; there is no namespace %s now", name)
	}
	return ""
}

// ofUnknown returns the end of a message about a resource that the server does not serve, and whose definition it does not
// remember.
func ofUnknown(r *Resource) string {
	if r.Version != "" || r.Kind != "" {
		return ""
	}
	return fmt.Sprintf("; the server doesn't have a resource type %q now", r.Name())
}

// some returns the newest change that a query selects; nil: there is none.
func (e *Env) some(ctx context.Context, q query) (found *changes.Change, err error) {
	_, err = e.each(ctx, q, func(c *changes.Change) (bool, error) {
		found = c
		return false, nil
	})
	return found, err
}

func compareRevisions(a, b string) int {
	n, _ := strconv.ParseUint(a, 10, 64)
	m, _ := strconv.ParseUint(b, 10, 64)
	switch {
	case n < m:
		return -1
	case n > m:
		return 1
	}
	return 0
}

// printer prints changes in one format. After end, only changes of a watch follow.
type printer interface {
	print(*changes.Change) error
	flush() error
	end(revision string) error
}

func (e *Env) printer(o HistoryOptions, one bool, field *changes.Path) printer {
	switch {
	case o.Output == "json" && o.Watch:
		lines := &jsonLines{json.NewEncoder(e.Out)}
		lines.e.SetEscapeHTML(false)
		return lines
	case o.Output == "json" || o.Output == "yaml":
		return &listPrinter{out: e.Out, yaml: o.Output == "yaml"}
	case o.Output == "name":
		return &namePrinter{e.Out}
	}
	t := &tablePrinter{env: e, field: field, wide: o.Output == "wide", table: &table{out: e.Out, width: e.Width}}
	head := []string{"REVISION", "TIME", "VERB"}
	if o.All {
		head = append(head, "NAMESPACE")
	}
	if !one {
		head = append(head, "OBJECT")
	}
	t.namespaces, t.objects = o.All, !one
	head = append(head, "BY", "CHANGED")
	if t.wide {
		head = slices.Insert(head, len(head)-1, "MANAGER", "AUDIT ID")
	}
	t.table.add(head)
	return t
}

type jsonLines struct{ e *json.Encoder }

func (p *jsonLines) print(c *changes.Change) error { return p.e.Encode(c) }
func (p *jsonLines) flush() error                  { return nil }
func (p *jsonLines) end(string) error              { return nil }

type namePrinter struct{ out io.Writer }

func (p *namePrinter) print(c *changes.Change) error {
	_, err := fmt.Fprintf(p.out, "change.%s/%s\n", changes.Group, c.Revision)
	return err
}
func (p *namePrinter) flush() error     { return nil }
func (p *namePrinter) end(string) error { return nil }

// listPrinter prints one list.
type listPrinter struct {
	out  io.Writer
	yaml bool
	list changes.ChangeList
}

func (p *listPrinter) print(c *changes.Change) error {
	p.list.Items = append(p.list.Items, *c)
	return nil
}

func (p *listPrinter) flush() error { return nil }

func (p *listPrinter) end(revision string) error {
	p.list.Kind, p.list.APIVersion, p.list.Metadata.ResourceVersion = changes.ListKind, changes.APIVersion, revision
	if p.list.Items == nil {
		p.list.Items = []changes.Change{}
	}
	return encode(p.out, p.list, p.yaml)
}

// encode prints a value as JSON or YAML for people and programs.
func encode(out io.Writer, v any, asYAML bool) error {
	if asYAML {
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	j := json.NewEncoder(out)
	j.SetIndent("", "  ")
	j.SetEscapeHTML(false)
	return j.Encode(v)
}

// tablePrinter prints rows.
type tablePrinter struct {
	env                       *Env
	field                     *changes.Path
	wide, namespaces, objects bool
	table                     *table
	rows                      int
}

func (p *tablePrinter) print(c *changes.Change) error {
	verb := c.Verb
	if c.Subresource != "" {
		verb += "/" + c.Subresource
	}
	if verb == "" {
		verb = "-"
	}
	row := []string{p.env.paint(yellow, c.Revision), p.env.clock(c.Time), verb}
	if p.namespaces {
		row = append(row, orDash(c.Namespace))
	}
	if p.objects {
		row = append(row, c.Resource+"/"+c.Name)
	}
	row = append(row, c.By())
	if p.wide {
		row = append(row, orDash(c.FieldManager), orDash(c.AuditID))
	}
	p.table.add(append(row, p.env.changed(c, p.field, p.wide)))
	p.rows++
	if p.rows%pageSize == 0 {
		return p.table.flush()
	}
	return nil
}

func (p *tablePrinter) flush() error { return p.table.flush() }

func (p *tablePrinter) end(string) error {
	if p.rows == 0 {
		p.table.rows = nil
	}
	return p.table.flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// clock shows a time of today without the date.
func (e *Env) clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.In(e.Now.Location())
	if t.Format(time.DateOnly) == e.Now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// shownFields is how many fields a row of a table has.
const shownFields = 3

// changed describes a change in one line.
func (e *Env) changed(c *changes.Change, only *changes.Path, all bool) string {
	word, color := c.Word(), red
	if c.Creates() {
		color = green
	}
	word = e.paint(color, word)
	if only == nil && (c.Creates() || c.Deletes()) {
		return word
	}
	shown := make([]changes.Field, 0, len(c.Fields))
	for _, f := range c.Shown() {
		if only == nil || only.Touches([]changes.Field{f}) {
			shown = append(shown, f)
		}
	}
	slices.SortStableFunc(shown, func(a, b changes.Field) int { return weight(a.Path) - weight(b.Path) })
	var parts []string
	if word != "" {
		parts = append(parts, word)
	}
	for i, f := range shown {
		if i == shownFields && !all {
			parts = append(parts, fmt.Sprintf("and %d more", len(shown)-i))
			break
		}
		parts = append(parts, describe(&f, c.Resource))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// weight orders the fields of a row: the desired state before what repeats it.
func weight(path string) int {
	switch {
	case strings.HasPrefix(path, "metadata.annotations[\"kubectl.kubernetes.io/last-applied"):
		return 3
	case strings.HasPrefix(path, "metadata."):
		return 2
	case strings.HasPrefix(path, "status."):
		return 1
	}
	return 0
}

// describe shows one field: spec.replicas 3 -> 5.
func describe(f *changes.Field, resource string) string {
	secret := changes.Confidential(resource, f.Path)
	switch {
	case f.From == nil:
		return f.Path + " added " + short(f.To, secret)
	case f.To == nil:
		return f.Path + " removed " + short(f.From, secret)
	}
	return f.Path + " " + short(f.From, secret) + " -> " + short(f.To, secret)
}

// maxShort is how many characters of a value a row shows.
const maxShort = 40

// short shows a value in a row.
func short(raw json.RawMessage, secret bool) string {
	if secret {
		return "***"
	}
	text := string(raw)
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '"' || r == ',' || r == 0x7f || r >= 0x80 && r < 0xa0 }) {
			text = s
		}
	}
	if runes := []rune(text); len(runes) > maxShort {
		text = string(runes[:maxShort-3]) + "..."
	}
	return text
}
