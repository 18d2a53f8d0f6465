package history

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Reader reads the history of a store for one request. One goroutine uses it.
type Reader struct {
	Store *store.Store
	// Head is the newest revision that lists have; zero: that of the store.
	Head store.Revision
	// Now returns the present, after which no instant is.
	Now func() time.Time
	// Schema returns the schema of the objects of a collection in a version, for the paths of fields; nil: it is not known.
	// Revision is that of the change.
	Schema func(collection, apiVersion string, revision store.Revision) *apply.Schema
	// May reports whether the user may see changes of a collection in the scope of the query. It is called once for each.
	May func(collection string) (bool, error)
	// Pause lets other requests go first. It is called whenever the reader has spent pauseEvery. Its error ends the reading.
	// Nil: it is not called.
	Pause func() error
	// Hold is called for the memory that a page takes, in bytes, and ends the reading with its error; nil: it is not counted.
	Hold func(bytes int64) error
	// Shared has the comparisons of other readers that follow the changes; nil: each reader makes its own.
	Shared *Shared

	may map[string]bool
}

// The cost of a page. Whatever the query, reading a page takes a bounded time, after which the page ends, with the
// position of the next one.
const (
	maxCost  = 1 << 16
	lookCost = 1  // a change in memory
	readCost = 16 // a change that is read back from the log
	diffCost = 8  // the comparison of two versions, in addition to one for each 256 bytes
	// maxPageBytes is the size of the objects and of the fields whose comparison ends a page. A field takes the length of its
	// path, which can be much longer than what the object has for it, and fieldBytes.
	maxPageBytes = 8 << 20
	fieldBytes   = 32
	// holdStep is how much memory is held at a time.
	holdStep = 256 << 10
	// pauseEvery is the cost after which other requests go first.
	pauseEvery = 1 << 11
)

// deduced is the schema of objects whose kind is not known: all lists are atomic.
var deduced = apply.Custom(schema.GroupVersionKind{}, typed.DeducedParseableType, false)

// Page is a part of a list of changes.
type Page struct {
	Items []changes.Change
	// Head is the newest revision that the list covers.
	Head store.Revision
	// Next is where the next page begins; nil: there is none.
	Next *Position
}

// Page reads the changes that the query selects, limit at most, from a position on; nil: from the first. It may return
// fewer, even none, although others follow. Changes that leave the history meanwhile are left out.
func (r *Reader) Page(ctx context.Context, q *Query, limit int, from *Position) (*Page, error) {
	page := &Page{Items: []changes.Change{}, Head: r.head()}
	if from != nil {
		page.Head = min(from.Head, page.Head)
	}
	after, upTo, err := r.bounds(ctx, q, page.Head)
	if err != nil {
		return nil, err
	}
	var at store.Revision // that of the change before
	skip, index := 0, 0   // index counts the changes of the revision at
	if from != nil {
		skip = from.Skip
		if q.Oldest {
			after = max(after, from.At-1)
		} else {
			upTo = min(upTo, from.At)
		}
	}
	cost := meter{pause: r.Pause, hold: r.Hold}
	in := store.Range{Collection: q.Collection, After: after, UpTo: upTo, Backward: !q.Oldest}
	if q.Collection != "" && q.Name != "" && q.oneKey() {
		in.Key = q.key()
	}
	for c, err := range r.Store.Recall(ctx, in) {
		if errors.As(err, new(*store.ExpiredError)) {
			return page, nil // the rest left the history meanwhile
		}
		if err != nil {
			return nil, err
		}
		if c.Revision != at {
			at, index = c.Revision, 0
		}
		index++
		if from != nil && c.Revision == from.At && index <= skip {
			continue
		}
		if cost.spent > maxCost || cost.bytes > maxPageBytes {
			page.Next = &Position{Head: page.Head, At: c.Revision, Skip: index - 1}
			return page, nil
		}
		if err := cost.look(c.FromLog); err != nil {
			return nil, err
		}
		made, selected, err := r.show(q, &c.CollectionChange, &cost)
		if err != nil {
			return nil, err
		}
		if !selected {
			continue
		}
		page.Items = append(page.Items, made)
		if err := cost.keep(&made, c.FromLog); err != nil {
			return nil, err
		}
		if len(page.Items) == limit {
			// Not the position of the next change, and not only if there is one: the user may not read it.
			page.Next = &Position{Head: page.Head, At: c.Revision, Skip: index}
			return page, nil
		}
	}
	return page, nil
}

func (r *Reader) head() store.Revision {
	if r.Head != 0 {
		return r.Head
	}
	return r.Store.Any().Revision()
}

// oneKey reports whether the name and the namespace of the query are the key of one object: always, unless the objects of
// all namespaces are selected.
func (q *Query) oneKey() bool { return q.Namespace != "" || !q.Namespaced }

// key is the key of the object with the name.
func (q *Query) key() string {
	if q.Namespaced {
		return q.Namespace + "/" + q.Name
	}
	return q.Name
}

// meter adds up the cost of a page.
type meter struct {
	pause        func() error
	hold         func(bytes int64) error
	spent, since int
	bytes        int
	unheld       int64
}

// keep counts the memory of a change that is a part of the page. The objects of one in memory are there anyway.
func (m *meter) keep(c *changes.Change, fromLog bool) error {
	if m.hold == nil {
		return nil
	}
	m.unheld += int64(fieldsSize(c.Fields))
	if fromLog {
		for i := range c.Fields {
			m.unheld += int64(len(c.Fields[i].From) + len(c.Fields[i].To))
		}
	}
	if m.unheld < holdStep {
		return nil
	}
	held := m.unheld
	m.unheld = 0
	return m.hold(held)
}

// fieldsSize returns the size of fields without their values.
func fieldsSize(fields []apply.Field) (size int) {
	for i := range fields {
		size += len(fields[i].Path) + fieldBytes
	}
	return size
}

// compared counts the fields of a comparison.
func (m *meter) compared(fields []apply.Field) error {
	size := fieldsSize(fields)
	m.bytes += size
	return m.add(size / 256)
}

func (m *meter) look(fromLog bool) error {
	if fromLog {
		return m.add(readCost)
	}
	return m.add(lookCost)
}

func (m *meter) add(n int) error {
	m.spent += n
	if m.since += n; m.since < pauseEvery || m.pause == nil {
		return nil
	}
	m.since = 0
	return m.pause()
}

// show returns a change as clients see it, if the query selects it and the user may see it. It has no fields if a version
// of the object cannot be decrypted.
func (r *Reader) show(q *Query, c *store.CollectionChange, cost *meter) (made changes.Change, selected bool, err error) {
	namespace, name := split(c.Key())
	o := c.Origin()
	actor := o.Actor
	if actor == nil {
		actor = &store.Actor{}
	}
	verb, subresource := o.Verb.String(), actor.Subresource
	switch {
	case actor.Loop != "" && c.After == nil: // it removed the last finalizer; the write of a request keeps its verb
		verb, subresource = store.VerbDelete.String(), ""
	case o.Verb == store.VerbCreate && c.Before != nil: // of the same request, such as the status of a definition
		verb = store.VerbUpdate.String()
	}
	switch {
	case q.Collection != "" && c.Collection != q.Collection,
		q.Namespace != "" && namespace != q.Namespace,
		q.Name != "" && name != q.Name,
		q.User != "" && (actor.Loop != "" || actor.User != q.User && actor.Impersonator != q.User),
		q.Verb != "" && verb != q.Verb,
		q.Subresource != "" && subresource != q.Subresource,
		q.Loop != nil && actor.Loop != *q.Loop,
		q.excludes(c.Collection, verb, subresource, actor):
		return made, false, nil
	}
	if may, err := r.allowed(c.Collection); err != nil || !may {
		return made, false, err
	}
	size := lengthOf(c.Before) + lengthOf(c.After)
	if err := cost.add(diffCost + size/256); err != nil {
		return made, false, err
	}
	cost.bytes += size
	var uid string
	var fields []apply.Field
	if c.Before.Unreadable() == "" && c.After.Unreadable() == "" {
		if uid, fields, selected = r.compare(q, c, size); !selected {
			return made, false, nil
		}
	} else if q.UID != "" || q.Labels != nil || q.Field != nil { // there is nothing to select by
		return made, false, nil
	}
	if err := cost.compared(fields); err != nil {
		return made, false, err
	}
	made = changes.Change{
		Revision: strconv.FormatUint(uint64(c.Revision), 10), Time: o.Time, Verb: verb, Subresource: subresource,
		User: actor.User, ImpersonatedBy: actor.Impersonator, UserAgent: actor.UserAgent, FieldManager: actor.FieldManager,
		AuditID: o.AuditID.String(), Loop: actor.Loop,
		Resource: c.Collection, Namespace: namespace, Name: name, UID: uid, Fields: fields,
	}
	if made.Loop != "" {
		made.User = ""
	}
	made.Complete()
	return made, true, nil
}

// compare returns the UID of a changed object and the fields that changed, if the query selects them.
func (r *Reader) compare(q *Query, c *store.CollectionChange, size int) (uid string, fields []apply.Field, selected bool) {
	made := r.Shared.find(c.Change, size)
	made.load(c.Change)
	of := &made.is
	if made.after == nil {
		of = &made.was
	}
	if q.UID != "" && of.Metadata.UID != q.UID {
		return "", nil, false
	}
	if q.Labels != nil && !q.Labels.Matches(labels.Set(made.was.Metadata.Labels)) && !q.Labels.Matches(labels.Set(made.is.Metadata.Labels)) {
		return "", nil, false
	}
	form := r.Schema(c.Collection, of.APIVersion, c.Revision)
	if form == nil {
		form = deduced
	}
	fields = r.Shared.diff(c.Change, made, form)
	if q.Field != nil && !q.Field.Touches(fields) {
		return "", nil, false
	}
	return of.Metadata.UID, fields, true
}

// allowed is May, which is called once for each collection.
func (r *Reader) allowed(collection string) (may bool, err error) {
	may, known := r.may[collection]
	if known {
		return may, nil
	}
	if may, err = r.May(collection); err != nil {
		return false, err
	}
	if r.may == nil {
		r.may = map[string]bool{}
	}
	r.may[collection] = may
	return may, nil
}

// split returns the namespace and the name of a key.
func split(key string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return namespace, name
	}
	return "", key
}

func bytesOf(o *store.Object) []byte {
	if o == nil {
		return nil
	}
	return o.Bytes()
}

func lengthOf(o *store.Object) int {
	if o == nil {
		return 0
	}
	return o.Len()
}

// head is the part of an object that every kind has.
type head struct {
	APIVersion string
	Metadata   struct {
		UID    string            `json:"uid"`
		Labels map[string]string `json:"labels"`
	}
}

// headOf reads the head of an object. It stops after the metadata, which come first in stored objects. What cannot be read
// is left out.
func headOf(object []byte) (h head) {
	d := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return h
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return h
		}
		switch name.String() {
		case "apiVersion":
			v, err := d.ReadToken()
			if err != nil {
				return h
			}
			h.APIVersion = v.String()
		case "metadata":
			v, err := d.ReadValue()
			if err == nil {
				_ = json.Unmarshal(v, &h.Metadata)
			}
			return h
		default:
			if err := d.SkipValue(); err != nil {
				return h
			}
		}
	}
	return h
}
