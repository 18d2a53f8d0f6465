package history

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Query selects changes. An empty field selects all.
type Query struct {
	Namespace string
	// Resource is the plural and the group of a resource: "pods", "deployments.apps". The caller sets the Collection that
	// has its objects.
	Resource, Collection string
	// Namespaced: the objects of the Collection have namespaces. The caller sets it, too.
	Namespaced bool
	Name, UID  string
	// User is the user who made the change, or who impersonated that user.
	User              string
	Verb, Subresource string
	// Loop is the part of the server that made the change by itself; empty: a request made it; nil: any.
	Loop  *string
	Field *changes.Path
	// Labels are those of the object before or after the change; nil: any.
	Labels labels.Selector
	// Oldest: the oldest change comes first.
	Oldest bool

	since, until instant
	not          map[string]map[string]bool // excluded values of a field
}

// Exclude excludes changes by a value of a field, which is resource, user, verb, subresource or loop.
func (q *Query) Exclude(field, value string) {
	if q.not == nil {
		q.not = map[string]map[string]bool{}
	}
	if q.not[field] == nil {
		q.not[field] = map[string]bool{}
	}
	q.not[field][value] = true
}

// ExcludeCollections excludes the collections of the excluded resources. The caller knows which collection has the objects of a
// resource.
func (q *Query) ExcludeCollections(of func(resource string) string) {
	resources := q.not[changes.SelectResource]
	delete(q.not, changes.SelectResource)
	for name := range resources {
		q.Exclude(changes.SelectResource, of(name))
	}
}

// excludes reports whether the query excludes a change.
func (q *Query) excludes(collection string, verb, subresource string, by *store.Actor) bool {
	if len(q.not) == 0 {
		return false
	}
	users := q.not[changes.SelectUser]
	return q.not[changes.SelectResource][collection] || q.not[changes.SelectVerb][verb] || q.not[changes.SelectSubresource][subresource] ||
		q.not[changes.SelectLoop][by.Loop] || by.Loop == "" && (users[by.User] || by.Impersonator != "" && users[by.Impersonator])
}

// instant is a bound as the client wrote it.
type instant struct {
	revision store.Revision // zero: none, or a time
	time     time.Time
}

func (i instant) isZero() bool { return i.revision == 0 && i.time.IsZero() }

// NewQuery reads the field selector of a request in a namespace; empty: in all.
func NewQuery(namespace string, selected fields.Selector) (*Query, error) {
	q := &Query{Namespace: namespace}
	if selected == nil {
		return q, nil
	}
	seen := map[string]bool{}
	for _, r := range selected.Requirements() {
		switch {
		case r.Operator == selection.NotEquals && excludable(r.Field):
			q.Exclude(r.Field, r.Value)
			continue
		case r.Operator != selection.Equals && r.Operator != selection.DoubleEquals:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the field %q of changes can be selected by = alone; resource, user, verb, subresource and loop can be excluded by !=", r.Field))
		case seen[r.Field]:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the field %q is selected twice", r.Field))
		}
		seen[r.Field] = true
		if err := q.set(r.Field, r.Value); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if q.Name != "" && q.Resource == "" {
		return nil, apierrors.NewBadRequest("a name selects the changes of one object: the field \"resource\" is needed, too")
	}
	return q, nil
}

// excludable reports whether changes can be excluded by the values of a field.
func excludable(field string) bool {
	switch field {
	case changes.SelectResource, changes.SelectUser, changes.SelectVerb, changes.SelectSubresource, changes.SelectLoop:
		return true
	}
	return false
}

// set applies one term of the field selector.
func (q *Query) set(name, value string) (err error) {
	switch name {
	case changes.SelectResource:
		q.Resource = value
	case changes.SelectName:
		q.Name = value
	case changes.SelectUID:
		q.UID = value
	case changes.SelectUser:
		q.User = value
	case changes.SelectVerb:
		q.Verb = value
	case changes.SelectSubresource:
		q.Subresource = value
	case changes.SelectLoop:
		q.Loop = &value
	case changes.SelectField:
		var p changes.Path
		if p, err = changes.ParsePath(value); err == nil {
			q.Field = &p
		}
	case changes.SelectSince:
		q.since, err = parseInstant(name, value)
	case changes.SelectUntil:
		q.until, err = parseInstant(name, value)
	case changes.SelectOrder:
		q.Oldest = value == changes.OldestFirst
		if !q.Oldest && value != changes.NewestFirst {
			err = fmt.Errorf("the order %q is unknown: want %q or %q", value, changes.NewestFirst, changes.OldestFirst)
		}
	case "metadata.namespace":
		if q.Namespace != "" && q.Namespace != value {
			err = errors.New("the field metadata.namespace is another namespace than that of the path")
		}
		q.Namespace = value
	default:
		err = fmt.Errorf("changes have no selectable field %q: there are resource, name, uid, user, verb, subresource, loop, field, since, until, order and metadata.namespace", name)
	}
	return err
}

func parseInstant(name, value string) (i instant, err error) {
	if n, err := strconv.ParseUint(value, 10, 64); err == nil && n > 0 {
		return instant{revision: store.Revision(n)}, nil
	}
	if i.time, err = time.Parse(time.RFC3339Nano, value); err != nil {
		return i, fmt.Errorf("%s is %q, which is neither a revision nor a time as in RFC 3339", name, value)
	}
	return i, nil
}

// Position is where a page begins, as a continue token has it.
type Position struct {
	// Head is the newest revision when the first page was read.
	Head store.Revision `json:"head"`
	// At is the revision of the next change. Skip changes of that revision were read.
	At   store.Revision `json:"at"`
	Skip int            `json:"skip,omitempty"`
}

// ParsePosition reads a continue token.
func ParsePosition(token string) (p Position, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.At == 0 || p.At > p.Head || p.Skip < 0 {
		return p, apierrors.NewBadRequest("the continue token is invalid")
	}
	return p, nil
}

// String returns the continue token.
func (p Position) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // impossible for three numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// check returns an error if the bound is later than the newest revision, or than now.
func (i instant) check(name string, newest store.Revision, now time.Time) error {
	switch {
	case i.revision > newest:
		return apierrors.NewBadRequest(fmt.Sprintf("%s is %d, which is later than the newest revision, %d", name, i.revision, newest))
	case i.time.After(now):
		return apierrors.NewBadRequest(fmt.Sprintf("%s is %s, which is later than now, %s", name, i.time.Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
	}
	return nil
}

// bounds returns the revisions that the query selects: after < revision <= upTo.
func (r *Reader) bounds(ctx context.Context, q *Query, head store.Revision) (after, upTo store.Revision, err error) {
	now := r.Now()
	if err := cmp.Or(q.since.check(changes.SelectSince, head, now), q.until.check(changes.SelectUntil, head, now)); err != nil {
		return 0, 0, err
	}
	floor, _ := r.Store.Bounds()
	after, upTo = floor, head
	switch {
	case q.since.revision != 0:
		after = max(floor, q.since.revision)
	case !q.since.time.IsZero():
		if after, err = r.revisionAt(ctx, q.since.time.Add(-1)); err != nil { // a change at that time is selected
			return 0, 0, err
		}
		after = max(after, floor)
	}
	switch {
	case q.until.revision != 0:
		upTo = q.until.revision
	case !q.until.time.IsZero():
		last, err := r.revisionAt(ctx, q.until.time)
		if err != nil {
			return 0, 0, err
		}
		upTo = min(head, last)
	}
	return after, upTo, nil
}

// revisionAt returns the newest revision that is not after a time; zero: the history has none.
func (r *Reader) revisionAt(ctx context.Context, t time.Time) (store.Revision, error) {
	at, err := r.Store.RevisionAt(ctx, t)
	if errors.As(err, new(*store.ExpiredError)) {
		return 0, nil
	}
	return at, err
}
