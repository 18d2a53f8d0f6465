package timeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// DiffOptions are the flags of diff.
type DiffOptions struct {
	All      bool // of all namespaces
	Labels   string
	From, To string
	Output   string // json; empty: YAML
	Managed  bool   // show managed fields and versions, too
	// External is a command that compares two directories, as in $KUBECTL_EXTERNAL_DIFF; empty: none.
	External string
	Err      io.Writer // of the external command
}

// changedObject is an object that may differ between two instants.
type changedObject struct {
	resource, namespace, name string
	before, after             *Object
	on                        *Resource
}

// Diff prints the difference between the states of two instants. It returns whether there is one.
func (e *Env) Diff(ctx context.Context, args []string, o DiffOptions) (differs bool, err error) {
	if o.Output != "" && o.Output != "json" {
		return false, usagef("--output=%q is not known: want json, or nothing for YAML", o.Output)
	}
	if o.From == "" {
		return false, usagef("--from is missing: name an instant, such as --from=-10m")
	}
	from, err := changes.ParseInstant(o.From, e.Now)
	if err != nil {
		return false, usagef("--from: %w", err)
	}
	to, err := changes.ParseInstant(cmp.Or(o.To, "now"), e.Now)
	if err != nil {
		return false, usagef("--to: %w", err)
	}
	if from, err = e.pin(ctx, from); err != nil {
		return false, err
	}
	if to, err = e.pin(ctx, to); err != nil {
		return false, err
	}
	all, err := e.targets(ctx, args, below(to), below(from))
	if err != nil {
		return false, err
	}
	var objects []*changedObject
	single := !o.All && o.Labels == "" && !slices.ContainsFunc(all, func(t target) bool { return t.name == "" }) && len(all) > 0
	if single {
		for _, t := range all {
			objects = append(objects, &changedObject{resource: t.resource.Name(), namespace: e.namespaceOf(t.resource), name: t.name, on: t.resource})
		}
	} else if objects, to, err = e.changedBetween(ctx, all, from, to, o); err != nil {
		return false, err
	}
	kinds := &schemas{env: e}
	differences := []changes.Difference{}
	var differing []*changedObject
	for i, c := range objects {
		if len(objects) > 20 {
			e.Progress.Step("%d of %d objects", i, len(objects))
		}
		if err := e.both(ctx, c, from, to); err != nil {
			e.Progress.Step("")
			return false, err
		}
		if single && c.before == nil && c.after == nil {
			return false, fmt.Errorf("%s/%s is there neither at %s nor at %s", c.resource, c.name, from, to)
		}
		if f := kinds.fields(ctx, c.before, c.after, o.Managed, below(to), below(from)); len(f) > 0 {
			differences = append(differences, changes.Difference{Resource: c.resource, Namespace: c.namespace, Name: c.name, Fields: f})
			differing = append(differing, c)
		}
	}
	e.Progress.Step("")
	switch {
	case o.Output == "json":
		err = encode(e.Out, differences, false)
	case o.External != "":
		return e.external(ctx, differing, o)
	default:
		err = e.printDifferences(differing, from, to, o)
	}
	return len(differing) > 0, err
}

func (e *Env) namespaceOf(r *Resource) string {
	if r.Namespaced {
		return e.Namespace
	}
	return ""
}

// changedBetween returns the objects that changed after one instant until another one, in order. The present becomes
// the revision of the list, so that all objects are of one state.
func (e *Env) changedBetween(ctx context.Context, all []target, from, to changes.Instant, o DiffOptions) ([]*changedObject, changes.Instant, error) {
	if len(all) == 0 {
		all = []target{{}}
	}
	namespace := e.Namespace
	if o.All {
		namespace = ""
	}
	first, last := from, to
	backwards := !from.Now && !to.Now && from.Revision > to.Revision || from.Now
	if backwards {
		first, last = to, from
	}
	known := map[string]*changedObject{}
	for _, t := range all {
		q := t.query(namespace)
		q.labels = o.Labels
		if first.Now {
			continue
		}
		q.terms["since"] = first.String()
		if !last.Now {
			q.terms["until"] = last.String()
		}
		revision, err := e.each(ctx, q, func(c *changes.Change) (bool, error) {
			key := c.Resource + "\x00" + c.Namespace + "\x00" + c.Name
			if known[key] == nil {
				known[key] = &changedObject{resource: c.Resource, namespace: c.Namespace, name: c.Name}
			}
			return true, nil
		})
		if err != nil {
			return nil, to, err
		}
		if last.Now && revision != "" {
			i, err := changes.ParseURL(revision)
			if err != nil {
				return nil, to, fmt.Errorf("the list of changes: %w", err)
			}
			last = i
			if backwards {
				from = i
			} else {
				to = i
			}
		}
	}
	objects := make([]*changedObject, 0, len(known))
	for _, c := range known {
		if c.on, _ = e.find(ctx, c.resource, below(to), below(from)); c.on != nil {
			objects = append(objects, c)
		}
	}
	slices.SortFunc(objects, func(a, b *changedObject) int {
		return cmp.Or(strings.Compare(a.resource, b.resource), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	return objects, to, nil
}

// both reads the two versions of an object. A resource that is not served at an instant has no objects.
func (e *Env) both(ctx context.Context, c *changedObject, from, to changes.Instant) (err error) {
	if c.before, err = e.get(ctx, from, c.on, c.namespace, c.name); err == nil {
		c.after, err = e.get(ctx, to, c.on, c.namespace, c.name)
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%s/%s: %w", c.resource, c.name, err)
	}
	return err
}

// file is the name of an object in a comparison of directories.
func (c *changedObject) file() string {
	parts := []string{c.on.Group, c.on.Version, c.on.Kind, c.namespace, c.name}
	return strings.ReplaceAll(strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "."), "/", "_")
}

// texts returns both versions as YAML. The data of a Secret is masked, as kubectl diff does.
func (c *changedObject) texts(all bool) (before, after string, err error) {
	if c.resource == "secrets" {
		mask(c.before, c.after)
	}
	if before, err = yamlOf(c.before, all); err == nil {
		after, err = yamlOf(c.after, all)
	}
	return before, after, err
}

// mask hides the values of Secrets. A changed value is still visible as a change; a changed annotation is not.
func mask(before, after *Object) {
	for _, member := range []string{"data", "stringData"} {
		maskMember(before, after, member)
	}
	for _, o := range []*Object{before, after} {
		if o == nil {
			continue
		}
		if annotations, ok := o.at("metadata", "annotations").(map[string]any); ok {
			for name := range annotations {
				annotations[name] = "***"
			}
		}
		if text, err := json.Marshal(o.tree); err == nil {
			o.raw = text
		}
	}
}

func maskMember(before, after *Object, member string) {
	of := func(o *Object) map[string]any {
		if o == nil {
			return nil
		}
		m, _ := o.tree[member].(map[string]any)
		return m
	}
	a, b := of(before), of(after)
	for key, was := range a {
		is, ok := b[key]
		switch {
		case !ok || was == is:
			a[key] = "***"
			if ok {
				b[key] = "***"
			}
		default:
			a[key], b[key] = "*** (before)", "*** (after)"
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			b[key] = "***"
		}
	}
}

func (e *Env) printDifferences(all []*changedObject, from, to changes.Instant, o DiffOptions) error {
	for _, c := range all {
		before, after, err := c.texts(o.Managed)
		if err != nil {
			return err
		}
		name := c.resource + "/" + c.name
		if c.namespace != "" {
			name = c.namespace + "/" + name
		}
		nameA, nameB := name+" at "+from.String(), name+" at "+to.String()
		if c.before == nil {
			nameA = "/dev/null"
		}
		if c.after == nil {
			nameB = "/dev/null"
		}
		if err := e.unified(e.Out, nameA, before, nameB, after); err != nil {
			return err
		}
	}
	return nil
}

// external runs another command on two directories. Its exit code says whether they differ.
func (e *Env) external(ctx context.Context, all []*changedObject, o DiffOptions) (differs bool, err error) {
	dir, err := os.MkdirTemp("", "tidemark-diff-*")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "FROM"), filepath.Join(dir, "TO")
	for _, d := range []string{from, to} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return false, err
		}
	}
	for _, c := range all {
		before, after, err := c.texts(o.Managed)
		if err != nil {
			return false, err
		}
		for _, side := range []struct {
			dir, text string
			there     bool
		}{{from, before, c.before != nil}, {to, after, c.after != nil}} {
			if !side.there {
				continue
			}
			if err := os.WriteFile(filepath.Join(side.dir, c.file()), []byte(side.text), 0o600); err != nil {
				return false, err
			}
		}
	}
	words := strings.Fields(o.External)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], from, to)...)
	cmd.Stdout, cmd.Stderr = e.Out, o.Err
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("KUBECTL_EXTERNAL_DIFF=%s: %w", o.External, err)
	}
	return false, nil
}
