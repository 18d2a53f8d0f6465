package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/history"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// This file serves the resource changes of the group tidemark.dev: the history of all objects. A request needs the present
// rights on the objects themselves: get for one object, list for many, watch to follow them. Package history reads the changes.

const (
	defaultChanges = 500  // of a page without a limit
	mostChanges    = 5000 // of a page
)

// changesQuery is a request for changes.
type changesQuery struct {
	query   *history.Query
	options *metainternal.ListOptions // nil before serveChanges, because users without rights get as far
}

// asksChanges reports whether the request lists or watches changes.
func (q *request) asksChanges() bool {
	return q.info.IsResource && q.info.Group == changes.Group && q.info.Resource == changes.Resource && q.info.collection &&
		q.info.Subresource == "" && (q.info.Verb == verbList || q.info.Verb == verbWatch)
}

// maxChangesSelector is the maximum length of the field selector of changes, in bytes. Authorization needs it, so requests of
// users without rights are parsed, too.
const maxChangesSelector = 16 << 10

// authorizeChanges returns an error unless the user may read the changed objects themselves. For changes of all resources,
// it requires the right on one of them; the changes of the others are left out later.
func (q *request) authorizeChanges() error {
	text := q.query().Get("fieldSelector")
	if len(text) > maxChangesSelector {
		return apierrors.NewBadRequest(fmt.Sprintf("the fieldSelector has %d bytes: want at most %d", len(text), maxChangesSelector))
	}
	selected, err := fields.ParseSelector(text)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	query, err := history.NewQuery(q.info.Namespace, selected)
	if err != nil {
		return err
	}
	q.changes = &changesQuery{query: query}
	query.ExcludeCollections(func(name string) string {
		if t := q.typeNamed(name); t != nil {
			return t.Collection
		}
		return name // of a definition that is gone
	})
	if query.Resource == "" {
		return q.mayReadSome(query)
	}
	group := schema.ParseGroupResource(query.Resource)
	query.Collection, query.Namespaced = query.Resource, true // of a definition that is gone
	if t := q.typeNamed(query.Resource); t != nil {
		query.Collection, query.Namespaced = t.Collection, t.Namespaced
	}
	a := q.reads(query, group)
	return q.may(&a)
}

// reads returns the attributes of reading objects of a resource.
func (q *request) reads(query *history.Query, of schema.GroupResource) authz.Attributes {
	verb := verbList
	switch {
	case q.info.Verb == verbWatch:
		verb = verbWatch
	case query.Name != "":
		verb = verbGet
	}
	return authz.Attributes{
		User: q.info.User, Verb: verb, IsResource: true, Group: of.Group, Resource: of.Resource, Namespace: query.Namespace, Name: query.Name,
		Path: q.info.Path,
	}
}

// mayReadSome returns an error unless the user may read objects of some resource.
func (q *request) mayReadSome(query *history.Query) error {
	seen := map[string]bool{}
	for t := range q.h.c.Catalog().Types() {
		if t.Collection == "" || seen[t.Collection] || query.Namespace != "" && !t.Namespaced {
			continue
		}
		seen[t.Collection] = true
		a := q.reads(query, t.GroupResource())
		err := q.may(&a)
		if err == nil || !apierrors.IsForbidden(err) {
			return err
		}
	}
	return authz.Forbidden(&q.info.Attributes, "no resource can be read there")
}

// typeNamed returns the first type of a resource, as "deployments.apps"; nil: there is none.
func (q *request) typeNamed(name string) *resource.Type {
	group := schema.ParseGroupResource(name)
	return typeOf(q.h.c.Catalog(), func(t *resource.Type) bool { return t.GroupResource() == group })
}

// typeOf returns the first type of a catalog that has a collection and for which is returns true; nil: there is none.
func typeOf(c *resource.Catalog, is func(*resource.Type) bool) *resource.Type {
	for t := range c.Types() {
		if t.Collection != "" && is(t) {
			return t
		}
	}
	return nil
}

// mayRead reports whether the user may read the objects of a collection.
func (q *request) mayRead(collection string) (bool, error) {
	if q.changes.query.Collection != "" { // authorizeChanges has checked it
		return true, nil
	}
	of := schema.ParseGroupResource(collection)
	if t := typeOf(q.h.c.Catalog(), func(t *resource.Type) bool { return t.Collection == collection }); t != nil {
		of = t.GroupResource()
	}
	a := q.reads(q.changes.query, of)
	err := q.may(&a)
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil, err
}

// serveChanges lists or watches changes.
func (q *request) serveChanges(out wire.Output) error {
	ctx := q.context()
	o, err := q.listOptions()
	if err != nil {
		return err
	}
	q.changes.options = o
	if !o.LabelSelector.Empty() {
		q.changes.query.Labels = o.LabelSelector
	}
	q.audited.bares()
	if o.ResourceVersion != "0" && o.Continue == "" {
		if _, err := q.store().MostRecent(ctx); err != nil {
			return registry.ReadStatus(err)
		}
	}
	if q.info.Verb == verbWatch {
		return q.followChanges(out)
	}
	return q.listChanges(ctx, out)
}

// historyReader returns a reader of the history for the request.
func (q *request) historyReader(ctx context.Context) *history.Reader {
	var head store.Revision
	if q.instant != nil {
		head = q.instant.revision
	}
	schemas := &historySchemas{
		q: q, ctx: ctx, now: map[string]*resource.Type{}, past: map[string]*pastType{}, all: map[versionedType]*apply.Schema{},
	}
	return &history.Reader{
		Store: q.store(), Head: head, Now: q.h.c.Now, May: q.mayRead, Pause: func() error { return fairness.Yield(ctx) }, Hold: q.hold, Schema: schemas.find,
	}
}

func (q *request) listChanges(ctx context.Context, out wire.Output) error {
	o := q.changes.options
	var from *history.Position
	if o.Continue != "" {
		p, err := history.ParsePosition(o.Continue)
		if err != nil {
			return err
		}
		from = &p
	}
	limit := defaultChanges
	if o.Limit > 0 {
		limit = int(min(o.Limit, mostChanges))
	}
	page, err := q.historyReader(ctx).Page(ctx, q.changes.query, limit, from)
	if err != nil {
		return registry.ReadStatus(err)
	}
	meta := changes.ListMetadata{ResourceVersion: strconv.FormatUint(uint64(page.Head), 10)}
	if page.Next != nil {
		meta.Continue = page.Next.String()
	}
	var body []byte
	switch out.Form {
	case wire.Table:
		body, err = q.changesTable(page.Items, meta)
	case wire.Whole:
		body, err = json.Marshal(changes.ChangeList{Kind: changes.ListKind, APIVersion: changes.APIVersion, Metadata: meta, Items: page.Items})
	default:
		return q.writeList(&registry.List{
			Type: q.typ, Revision: page.Head, Continue: meta.Continue, Items: metadataOf(page.Items), Close: func() {},
		}, out)
	}
	if err != nil {
		return err
	}
	if err := q.holdResponse(len(body)); err != nil {
		return err
	}
	return q.json(http.StatusOK, body, out)
}

// metadataOf yields objects with the metadata of changes, as other resources have it.
func metadataOf(all []changes.Change) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		for i := range all {
			if o, err := metadataObject(&all[i]); !yield(o, err) || err != nil {
				return
			}
		}
	}
}

func metadataObject(c *changes.Change) (*store.Object, error) {
	value, err := json.Marshal(changes.Change{Kind: c.Kind, APIVersion: c.APIVersion, Metadata: c.Metadata})
	return &store.Object{Key: c.Namespace + "/" + c.Revision, Held: value}, err
}

// changesTable returns a table of changes.
func (q *request) changesTable(all []changes.Change, meta changes.ListMetadata) ([]byte, error) {
	t := metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ListMeta:          metav1.ListMeta{ResourceVersion: meta.ResourceVersion, Continue: meta.Continue},
		ColumnDefinitions: history.Columns, Rows: []metav1.TableRow{},
	}
	include := metav1.IncludeObjectPolicy(q.query().Get("includeObject"))
	for i := range all {
		row, err := history.Row(&all[i], include)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, row)
	}
	return json.Marshal(&t)
}

// followChanges streams changes as events ADDED, the oldest first.
func (q *request) followChanges(out wire.Output) error {
	o := q.changes.options
	var shape *shape // of metadata alone
	switch {
	case out.Form == wire.Partial:
		var err error
		if shape, err = q.newShape(q.typ, out); err != nil {
			return err
		}
	case out.Media != wire.JSON || out.Form != wire.Whole && out.Form != wire.Table:
		return notShown("changes can be watched as JSON alone")
	}
	if o.SendInitialEvents != nil && *o.SendInitialEvents { // a client then lists, and watches from there
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "a watch of changes begins with those that follow: list the others"),
		})
	}
	after := uint64(0)
	if o.ResourceVersion != "" {
		var err error
		if after, err = strconv.ParseUint(o.ResourceVersion, 10, 64); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the resource version %q is no number", o.ResourceVersion))
		}
	}
	until, err := q.until()
	if err != nil {
		return err
	}
	if after == 0 && q.instant != nil {
		after = uint64(q.instant.revision)
	}
	watching, stop := q.watchContext()
	ctx, cancel := context.WithTimeout(watching, registry.WatchDuration(o))
	q.ctx, q.cancel = ctx, func() { cancel(); stop() }
	reader := q.historyReader(ctx)
	reader.Shared = &q.h.compared
	follower, err := reader.Follow(ctx, q.changes.query, store.Revision(after))
	if err == nil {
		defer follower.Close()
	}
	q.route = q.h.metrics.longRunning(q)
	q.header()["Content-Type"] = jsonType
	if shape != nil && shape.binary != nil {
		q.header()["Content-Type"] = shape.binary.StreamType
	}
	q.lines.open(q)
	q.writeHeader(http.StatusOK)
	if flushed := q.lines.flush(); flushed != nil {
		return nil // the client is gone
	}
	if err == nil {
		err = q.sendChanges(ctx, follower, out, shape, until)
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrClosed) || errors.Is(err, errNoRoom) {
		return nil
	}
	var expired *store.ExpiredError
	if errors.As(err, &expired) {
		err = apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", after, expired.Floor))
	}
	status := encodeStatus(statusOf(registry.ReadStatus(err)))
	line := wire.AppendEvent(nil, string(registry.Error), status[:len(status)-1])
	if shape != nil {
		line, err = shape.statusEvent(nil, string(registry.Error), status)
		if err != nil {
			return nil // the stream ends without a reason
		}
	}
	_ = q.sendLines(line)
	return nil
}

// changeEvent appends the event of a change. A shape shows its metadata alone; nil: all of it.
func (q *request) changeEvent(to []byte, c *changes.Change, out wire.Output, of *shape) ([]byte, error) {
	var object []byte
	var err error
	switch {
	case of != nil:
		o, err := metadataObject(c)
		if err != nil {
			return to, err
		}
		return of.event(to, &registry.Event{Type: registry.Added, Object: o})
	case out.Form == wire.Table:
		object, err = q.changesTable([]changes.Change{*c}, changes.ListMetadata{ResourceVersion: c.Revision})
	default:
		object, err = json.Marshal(c)
	}
	return wire.AppendEvent(to, string(registry.Added), object), err
}

// sendChanges sends changes, and bookmarks if the client allows them, until the context ends, or to a revision; zero: there
// is none.
func (q *request) sendChanges(ctx context.Context, f *history.Follower, out wire.Output, of *shape, until store.Revision) error {
	bookmark := time.Time{} // when the next one is due; zero: never
	end, _ := ctx.Deadline()
	if q.changes.options.AllowWatchBookmarks {
		bookmark = q.h.c.Registry.NextBookmark(time.Now(), end)
	}
	for ctx.Err() == nil {
		all, at, err := f.Next(ctx)
		if err != nil {
			return err
		}
		last := until != 0 && at >= until
		if last {
			all = slices.DeleteFunc(all, func(c changes.Change) bool { return c.After(uint64(until)) })
		}
		var buf []byte
		for i := range all {
			before := len(buf)
			if buf, err = q.changeEvent(buf, &all[i], out, of); err != nil {
				return err
			}
			q.route.sent(len(buf) - before)
		}
		if len(all) == 0 && !bookmark.IsZero() && !time.Now().Before(bookmark) {
			bookmark = q.h.c.Registry.NextBookmark(time.Now(), end)
			if buf, err = changesBookmark(buf, at, of); err != nil {
				return err
			}
		}
		if len(buf) > 0 {
			if err := q.sendLines(buf); err != nil {
				return err
			}
		}
		switch {
		case last:
			return nil
		case len(buf) > 0:
			continue
		}
		q.seat.Leave(0)
		waitChanges(ctx, f, bookmark)
	}
	return nil
}

// waitChanges waits until there may be another change, until the context ends, or until a time, unless it is zero.
func waitChanges(ctx context.Context, f *history.Follower, until time.Time) {
	if !until.IsZero() {
		waiting, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		ctx = waiting
	}
	f.Wait(ctx)
}

// changesBookmark appends the event of a bookmark.
func changesBookmark(to []byte, at store.Revision, of *shape) ([]byte, error) {
	if of != nil {
		return of.event(to, &registry.Event{Type: registry.Bookmark, Revision: at})
	}
	return wire.AppendEvent(to, string(registry.Bookmark), fmt.Appendf(nil,
		`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"}}`, changes.Kind, changes.APIVersion, at)), nil
}

// sendLines sends events at once.
func (q *request) sendLines(events []byte) error {
	if err := q.lines.send(events, nil); err != nil {
		return err
	}
	return q.lines.flush()
}
