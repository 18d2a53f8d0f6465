package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// UndeleteOptions are the flags of undelete.
type UndeleteOptions struct {
	At      string
	Cascade bool
	DryRun  bool
	Output  string // name, yaml, json; empty: a line for each object
}

// lost is a deleted object.
type lost struct {
	resource             string // deployments.apps
	namespace, name, uid string
	deleted              uint64 // the revision of its deletion; zero: not known
	state                uint64 // the revision of the state to bring back
	owners               []string
	on                   *Resource
	object               *Object
	wasVisited           bool
}

func (l *lost) String() string { return l.resource + "/" + l.name }

// undeletion brings objects back.
type undeletion struct {
	*Env
	o      UndeleteOptions
	uids   map[string]string // new ones by old ones
	made   []*Object
	failed int
	total  int
}

// Undelete creates objects again that were deleted.
func (e *Env) Undelete(ctx context.Context, args []string, o UndeleteOptions) error {
	if o.Output != "" && !slices.Contains([]string{"name", "yaml", "json"}, o.Output) {
		return usagef("--output=%q is not known: want name, yaml or json, or nothing for a line for each object", o.Output)
	}
	if err := e.writable(); err != nil {
		return err
	}
	at := changes.Instant{Now: true}
	if o.At != "" {
		var err error
		if at, err = changes.ParseInstant(o.At, e.Now); err != nil {
			return usagef("--at: %w", err)
		}
		if at, err = e.pin(ctx, at); err != nil {
			return err
		}
	}
	all, err := e.targets(ctx, args, "", below(at))
	if err != nil {
		return err
	}
	u := &undeletion{Env: e, o: o, uids: map[string]string{}}
	var roots []*lost
	for _, t := range all {
		if t.name == "" {
			return usagef("%s: want RESOURCE/NAME, such as deploy/web", t.resource.Name())
		}
		l, err := u.look(ctx, t, at)
		if err != nil {
			return err
		}
		roots = append(roots, l)
	}
	for _, l := range roots {
		if err := u.root(ctx, l); err != nil {
			return err
		}
	}
	e.Progress.Step("")
	if err := u.print(); err != nil {
		return err
	}
	if u.failed > 0 {
		return fmt.Errorf("%d of %d objects were not undeleted", u.failed, u.total)
	}
	return nil
}

// look finds the deletion of an object, and reads its last state.
func (u *undeletion) look(ctx context.Context, t target, at changes.Instant) (*lost, error) {
	namespace := u.namespaceOf(t.resource)
	if isServed, err := u.serves(ctx, t.resource); err != nil {
		return nil, err
	} else if !isServed {
		return nil, fmt.Errorf("the server doesn't have a resource type %q now: bring its definition back first, as in tidemark undelete crd/%s", t.resource.Name(), t.resource.Name())
	}
	present, err := u.get(ctx, changes.Instant{Now: true}, t.resource, namespace, t.name)
	if err != nil {
		return nil, err
	}
	if present != nil {
		return nil, fmt.Errorf("%s is there, and nothing was changed; tidemark restore %s%s --at=... writes an older state", t, t, flagOf(namespace))
	}
	l := &lost{resource: t.resource.Name(), namespace: namespace, name: t.name, on: t.resource, state: at.Revision}
	if at.Now {
		_, err := u.each(ctx, t.query(namespace), func(c *changes.Change) (bool, error) {
			if !c.Deletes() {
				return true, nil
			}
			l.uid = c.UID
			l.deleted, err = strconv.ParseUint(c.Revision, 10, 64)
			l.state = l.deleted - 1
			return false, err
		})
		if err != nil {
			return nil, err
		}
		if l.deleted == 0 {
			return nil, fmt.Errorf("the history has no deletion of %s%s; it begins at %s", t, inNamespace(namespace), orDash(u.first(ctx)))
		}
	}
	if err := u.read(ctx, l); err != nil {
		return nil, err
	}
	if l.object == nil {
		return nil, fmt.Errorf("%s was not there at %d%s", t, l.state, inNamespace(namespace))
	}
	l.uid = l.object.text("metadata", "uid")
	return l, nil
}

// serves reports whether the server serves a resource now.
func (e *Env) serves(ctx context.Context, r *Resource) (bool, error) {
	all, err := e.Resources(ctx, "")
	return slices.ContainsFunc(all, func(now Resource) bool { return now.Group == r.Group && now.Plural == r.Plural }), err
}

// flagOf returns the flag of a namespace, for a command that the user may copy.
func flagOf(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + namespace
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in the namespace " + namespace
}

// read reads the last state of an object, with the finalizers that it had before its deletion began.
func (u *undeletion) read(ctx context.Context, l *lost) (err error) {
	if l.object, err = u.get(ctx, changes.Instant{Revision: l.state}, l.on, l.namespace, l.name); err != nil || l.object == nil {
		return err
	}
	if l.object.text("metadata", "deletionTimestamp") == "" {
		return nil
	}
	began, err := u.began(ctx, l)
	if err != nil || began < 2 {
		return err
	}
	before, err := u.get(ctx, changes.Instant{Revision: began - 1}, l.on, l.namespace, l.name)
	if err != nil || before == nil {
		return err
	}
	l.object.metadata()["finalizers"] = before.metadata()["finalizers"]
	return nil
}

// began returns the revision with which the deletion of an object began; zero: it is not known.
func (u *undeletion) began(ctx context.Context, l *lost) (revision uint64, err error) {
	q := query{namespace: l.namespace, terms: map[string]string{"resource": l.resource, "name": l.name, "uid": l.object.text("metadata", "uid"), "field": "metadata.deletionTimestamp"}}
	_, err = u.each(ctx, q, func(c *changes.Change) (bool, error) {
		if c.Creates() || c.Deletes() {
			return true, nil
		}
		revision, err = strconv.ParseUint(c.Revision, 10, 64)
		return false, err
	})
	return revision, err
}

// root brings back one object, and with --cascade what went with it.
func (u *undeletion) root(ctx context.Context, l *lost) error {
	var below []*lost
	if u.o.Cascade {
		var err error
		if below, err = u.below(ctx, l); err != nil {
			return err
		}
	}
	u.total += 1 + len(below)
	if err := u.create(ctx, l); err != nil {
		return err
	}
	if l.resource == definitions && !u.o.DryRun && len(below) > 0 {
		if err := u.established(ctx, l); err != nil {
			return err
		}
	}
	for i, d := range below {
		u.Progress.Step("%d of %d objects", i, len(below))
		err := u.bring(ctx, d)
		switch {
		case apierrors.IsAlreadyExists(err):
			u.note("%s%s is there already", d, inNamespace(d.namespace))
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			u.failed++
			u.note("%s%s was not undeleted: %v", d, inNamespace(d.namespace), err)
		}
	}
	return nil
}

func (u *undeletion) note(format string, a ...any) { u.Progress.Done(format, a...) }

// bring reads and creates an object that went with another one.
func (u *undeletion) bring(ctx context.Context, l *lost) (err error) {
	places := []string{""}
	if u.o.DryRun {
		places = append(places, below(changes.Instant{Revision: l.state}))
	}
	if l.on, err = u.find(ctx, l.resource, places...); err != nil {
		return err
	}
	if err = u.read(ctx, l); err != nil {
		return err
	}
	if l.object == nil && u.o.At != "" { // it was made later
		u.total--
		u.note("%s%s was not there at %d", l, inNamespace(l.namespace), l.state)
		return nil
	}
	if l.object == nil {
		return fmt.Errorf("it was not there at %d", l.state)
	}
	l.uid = l.object.text("metadata", "uid")
	err = u.create(ctx, l)
	if apierrors.IsAlreadyExists(err) { // its dependents belong to the one that is there
		if present, _ := u.get(ctx, changes.Instant{Now: true}, l.on, l.namespace, l.name); present != nil {
			u.uids[l.uid] = present.text("metadata", "uid")
		}
	}
	return err
}

// below returns the objects that went with another one, owners first. They come back as they were last, or as of the instant
// that the user gives.
func (u *undeletion) below(ctx context.Context, root *lost) ([]*lost, error) {
	since := root.state
	if root.object.text("metadata", "deletionTimestamp") != "" {
		began, err := u.began(ctx, root)
		if err != nil {
			return nil, err
		}
		if began > 1 {
			since = began - 1
		}
	}
	namespace := root.namespace
	if root.resource == "namespaces" {
		namespace = root.name
	}
	q := query{namespace: namespace, terms: map[string]string{"since": strconv.FormatUint(since, 10), "order": changes.OldestFirst}}
	gone := map[string]*lost{}
	_, err := u.each(ctx, q, func(c *changes.Change) (bool, error) {
		if !c.Deletes() || c.UID == root.uid || strings.HasPrefix(c.Resource, "events") {
			return true, nil
		}
		l := &lost{resource: c.Resource, namespace: c.Namespace, name: c.Name, uid: c.UID, owners: ownersOf(c)}
		var err error
		l.deleted, err = strconv.ParseUint(c.Revision, 10, 64)
		if l.state = root.state; u.o.At == "" {
			l.state = l.deleted - 1
		}
		gone[c.Resource+"\x00"+c.Namespace+"\x00"+c.Name] = l
		return true, err
	})
	if err != nil {
		return nil, err
	}
	kind := ""
	if root.resource == definitions {
		kind = root.object.text("spec", "names", "plural") + "." + root.object.text("spec", "group")
	}
	chosen := map[string]*lost{} // by uid
	for _, l := range gone {
		if l.resource == kind || root.resource == "namespaces" {
			chosen[l.uid] = l
		}
	}
	for more := true; more; {
		more = false
		for _, l := range gone {
			if chosen[l.uid] == nil && slices.ContainsFunc(l.owners, func(uid string) bool { return uid == root.uid || chosen[uid] != nil }) {
				chosen[l.uid], more = l, true
			}
		}
	}
	return ordered(chosen), nil
}

// ownersOf returns the uids of the owners of an object that a change deleted.
func ownersOf(c *changes.Change) (uids []string) {
	for i := range c.Fields {
		f := &c.Fields[i]
		rest, ok := strings.CutPrefix(f.Path, "metadata.ownerReferences")
		if !ok {
			continue
		}
		if rest == "" { // one field
			var all []struct {
				UID string `json:"uid"`
			}
			if json.Unmarshal(f.From, &all) == nil {
				for _, o := range all {
					uids = append(uids, o.UID)
				}
			}
			continue
		}
		var one struct {
			UID string `json:"uid"`
		}
		switch {
		case strings.HasSuffix(rest, "].uid"):
			if json.Unmarshal(f.From, &one.UID) == nil {
				uids = append(uids, one.UID)
			}
		case strings.HasSuffix(rest, "]"): // a reference is one field
			if json.Unmarshal(f.From, &one) == nil {
				uids = append(uids, one.UID)
			}
		}
	}
	return uids
}

// early are the resources that others need.
var early = []string{definitions, "resourcequotas", "limitranges", "serviceaccounts", "secrets", "configmaps", "persistentvolumeclaims",
	"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "services"}

// ordered returns objects so that owners, and the resources that others need, come first.
func ordered(chosen map[string]*lost) (all []*lost) {
	sorted := make([]*lost, 0, len(chosen))
	for _, l := range chosen {
		sorted = append(sorted, l)
	}
	rank := func(l *lost) int {
		if i := slices.Index(early, l.resource); i >= 0 {
			return i
		}
		if l.resource == "pods" {
			return len(early) + 1
		}
		return len(early)
	}
	slices.SortFunc(sorted, func(a, b *lost) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.resource+"\x00"+a.namespace+"\x00"+a.name, b.resource+"\x00"+b.namespace+"\x00"+b.name)
	})
	var visit func(l *lost)
	visit = func(l *lost) {
		if l.wasVisited {
			return
		}
		l.wasVisited = true
		for _, uid := range l.owners {
			if owner := chosen[uid]; owner != nil {
				visit(owner)
			}
		}
		all = append(all, l)
	}
	for _, l := range sorted {
		visit(l)
	}
	return all
}

// create creates an object without what only the server sets.
func (u *undeletion) create(ctx context.Context, l *lost) error {
	old := l.object.text("metadata", "uid")
	status, _ := l.object.at("status").(map[string]any)
	hadStatus := len(status) > 0 && l.on.Status
	if err := u.clean(ctx, l); err != nil {
		return err
	}
	v := url.Values{"fieldManager": {"tidemark-undelete"}}
	made := l.object
	switch {
	case !u.o.DryRun:
		var err error
		if made, err = u.write(ctx, http.MethodPost, l.on.path(l.namespace, "")+"?"+v.Encode(), l.object); err != nil {
			return err
		}
		u.uids[old] = made.text("metadata", "uid")
	case len(u.made) == 0: // what depends on it can be tried only when it is there
		v.Set("dryRun", "All")
		if _, err := u.write(ctx, http.MethodPost, l.on.path(l.namespace, "")+"?"+v.Encode(), l.object); err != nil {
			return err
		}
		fallthrough
	default:
		u.uids[old] = old // so that its dependents keep their references
	}
	u.made = append(u.made, made)
	if u.o.Output != "" {
		return nil
	}
	suffix := ""
	if hadStatus { // the create ignores it
		suffix = ", without its status"
	}
	if u.o.DryRun {
		suffix += " (dry run)"
	}
	u.Progress.Step("")
	_, err := fmt.Fprintf(u.Out, "%s undeleted%s, as it was at %d%s\n", l, inNamespace(l.namespace), l.state, suffix)
	return err
}

// clean removes what only the server sets, and what no longer makes sense.
func (u *undeletion) clean(ctx context.Context, l *lost) error {
	o := l.object
	m := o.metadata()
	for _, name := range ownMetadata {
		delete(m, name)
	}
	if l.on.Status {
		delete(o.tree, "status")
	}
	if finalizers, ok := m["finalizers"].([]any); ok {
		m["finalizers"] = slices.DeleteFunc(finalizers, func(f any) bool { return f == "foregroundDeletion" || f == "orphan" })
	} else {
		delete(m, "finalizers")
	}
	if l.resource == "jobs.batch" && o.at("spec", "manualSelector") != true {
		cleanJob(o)
	}
	return u.owners(ctx, l)
}

// cleanJob removes the selector that the server makes of the uid.
func cleanJob(o *Object) {
	if spec, ok := o.at("spec").(map[string]any); ok {
		delete(spec, "selector")
	}
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		if labels, ok := o.at(path...).(map[string]any); ok {
			for _, name := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
				delete(labels, name)
			}
		}
	}
}

// owners gives the references to owners the new uids, and drops those to owners that are gone: the garbage collector
// would delete the object again.
func (u *undeletion) owners(ctx context.Context, l *lost) error {
	m := l.object.metadata()
	references, ok := m["ownerReferences"].([]any)
	if !ok {
		return nil
	}
	var kept []any
	for _, r := range references {
		owner, _ := r.(map[string]any)
		old, _ := owner["uid"].(string)
		if uid, ok := u.uids[old]; ok {
			owner["uid"] = uid
			kept = append(kept, owner)
			continue
		}
		there, err := u.isThere(ctx, owner, l.namespace)
		if err != nil {
			return err
		}
		if there {
			kept = append(kept, owner)
			continue
		}
		u.note("%s%s has no owner any more: its %v %v is gone", l, inNamespace(l.namespace), owner["kind"], owner["name"])
	}
	delete(m, "ownerReferences")
	if len(kept) > 0 {
		m["ownerReferences"] = kept
	}
	return nil
}

// isThere reports whether an owner exists.
func (u *undeletion) isThere(ctx context.Context, owner map[string]any, namespace string) (bool, error) {
	version, _ := owner["apiVersion"].(string)
	kind, _ := owner["kind"].(string)
	name, _ := owner["name"].(string)
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return false, nil
	}
	all, err := u.Resources(ctx, "")
	if err != nil {
		return false, err
	}
	for i := range all {
		r := &all[i]
		if r.Group != gv.Group || r.Version != gv.Version || r.Kind != kind {
			continue
		}
		present, err := u.get(ctx, changes.Instant{Now: true}, r, namespace, name)
		if apierrors.IsForbidden(err) {
			return true, nil // the garbage collector knows
		}
		return present != nil && present.text("metadata", "uid") == owner["uid"], err
	}
	return false, nil
}

const (
	// establishedPolls is the maximum number of polls for a definition. establishedPause follows each of them.
	establishedPolls = 300
	establishedPause = 100 * time.Millisecond
)

// established waits until the server serves the custom resources of a definition.
func (u *undeletion) established(ctx context.Context, l *lost) error {
	u.Progress.Step("%s: waiting until it is established", l)
	for range establishedPolls {
		o, err := u.get(ctx, changes.Instant{Now: true}, l.on, "", l.name)
		if err != nil {
			return err
		}
		if o != nil && isEstablished(o) {
			u.found = nil
			if _, err := u.find(ctx, l.name, ""); err == nil {
				return nil
			}
		}
		select {
		case <-time.After(establishedPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New(l.String() + " is not established: its custom resources were not undeleted")
}

func isEstablished(o *Object) bool {
	conditions, _ := o.at("status", "conditions").([]any)
	for _, c := range conditions {
		if m, _ := c.(map[string]any); m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}

// print prints the objects in the format of the flag.
func (u *undeletion) print() error {
	for i, o := range u.made {
		var err error
		switch u.o.Output {
		case "name":
			kind := strings.ToLower(o.text("kind"))
			if group := o.gvk().Group; group != "" {
				kind += "." + group
			}
			_, err = fmt.Fprintf(u.Out, "%s/%s\n", kind, o.text("metadata", "name"))
		case "json":
			err = encode(u.Out, o.tree, false)
		case "yaml":
			if i > 0 {
				fmt.Fprintln(u.Out, "---")
			}
			err = encode(u.Out, o.tree, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
