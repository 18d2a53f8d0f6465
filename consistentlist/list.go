package consistentlist

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

// Client lists and watches one resource, in one namespace or in all. The typed, the
// dynamic and the metadata clients of client-go are Clients.
type Client[L Collection] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Collection is a list type of a client, such as *corev1.PodList, *unstructured.UnstructuredList or
// *metav1.PartialObjectMetadataList.
type Collection interface {
	metav1.ListInterface
	runtime.Object
}

// Options select the objects and the limits of retries. The zero value works.
type Options struct {
	// LabelSelector and FieldSelector choose objects; empty chooses all.
	LabelSelector, FieldSelector string

	// Limit is the most objects of a page; zero means DefaultLimit, a negative number
	// the whole list in one page. Servers may send fewer, and may ignore it.
	Limit int64

	// Inconsistent lets a list go on when its version expires between two pages: the
	// remaining pages come from a newer state, and Page.Inconsistent is true. Without it
	// the list begins again. Exact lists never go on, and a watch never begins with such a list.
	Inconsistent bool

	// Retries is how often a request is repeated after a response that allows it, a
	// list begun again, and a watch opened again without an event in between. Zero
	// means 10, a negative number none.
	Retries int

	// MaxRetryAfter is the longest that a server's Retry-After is waited for; a
	// request that would have to wait longer fails. Zero means 30 s.
	MaxRetryAfter time.Duration

	// Timeout bounds the wait for one page, with all repeats and whatever the client
	// repeats by itself, and the wait for a watch to open. Zero means 2 minutes.
	Timeout time.Duration
}

const (
	// DefaultLimit is the most objects of a page where Options.Limit is zero.
	DefaultLimit = 500
	// MaxPages is after how many pages a list that does not end is given up.
	MaxPages = 100_000
)

func (o Options) limit() int64 {
	if o.Limit == 0 {
		return DefaultLimit
	}
	return max(o.Limit, 0)
}

func (o Options) retries() int {
	if o.Retries == 0 {
		return 10
	}
	return max(o.Retries, 0)
}

func (o Options) maxRetryAfter() time.Duration {
	if o.MaxRetryAfter == 0 {
		return 30 * time.Second
	}
	return o.MaxRetryAfter
}

func (o Options) timeout() time.Duration {
	if o.Timeout == 0 {
		return 2 * time.Minute
	}
	return o.Timeout
}

// Page is a part of a list. Its objects are in List.Items, and its version is
// List.GetResourceVersion().
type Page[L Collection] struct {
	List L

	// First is set if a list begins here. If pages came before, their version has
	// expired: forget them.
	First bool

	// Inconsistent is set if this page is of a newer state than the first: objects
	// may be missing, or come twice. See Options.Inconsistent.
	Inconsistent bool

	from query[L]
	// version is the first page's, from which nothing is missed.
	version string
}

// query has the arguments of a list.
type query[L Collection] struct {
	client    Client[L]
	guarantee Guarantee
	options   Options
}

// List yields the pages of a list, one in memory at a time, all of one version that
// keeps the guarantee. It ends after the last page, or after an error: an *Error if
// the promise cannot be kept, the context's cause once it is done, or else what the
// client returned. Pages that came before an error are part of no complete list.
//
// A list begins again, with Page.First, if its version expires between two pages.
// Each use of the iterator lists anew.
func List[L Collection](ctx context.Context, client Client[L], g Guarantee, o Options) iter.Seq2[Page[L], error] {
	q := query[L]{client, g, o}
	return func(yield func(Page[L], error) bool) {
		err := g.check()
		for restarts := 0; err == nil; restarts++ {
			err = q.list(ctx, yield)
			if !expired(err) {
				break
			}
			if restarts == o.retries() {
				break
			}
			if _, final := errors.AsType[*Error](err); final {
				break
			}
			err = nil
		}
		if err != nil && err != errStopped {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			yield(Page[L]{}, g.typed(err))
		}
	}
}

// errStopped means that the caller has left the iteration.
var errStopped = errors.New("consistentlist: the caller has left the iteration")

// list goes once through the pages. A version that expires between two of them is
// the server's 410.
func (q query[L]) list(ctx context.Context, yield func(Page[L], error) bool) error {
	list, err := q.first(ctx)
	if err != nil {
		return err
	}
	page := Page[L]{List: list, First: true, from: q, version: list.GetResourceVersion()}
	for pages, version := 1, page.version; ; pages++ {
		if !yield(page, nil) {
			return errStopped
		}
		token := page.List.GetContinue()
		switch {
		case token == "":
			return nil
		case pages == MaxPages:
			return q.broken(version, fmt.Sprintf("the list has more than %d pages", MaxPages))
		}
		var none L
		page.List, page.First = none, false // so that one page can go while the next comes
		if page.List, page.Inconsistent, err = q.next(ctx, token, page.Inconsistent); err != nil {
			return err
		}
		got := page.List.GetResourceVersion()
		if got != version {
			if err := q.moved(version, got, page.Inconsistent); err != nil {
				return err
			}
			version = got
		}
		if page.List.GetContinue() == token {
			return q.broken(version, "a page continues with itself")
		}
	}
}

// first asks for the first page, and falls back as KEP-2523 says under Backward
// Compatibility.
func (q *query[L]) first(ctx context.Context) (L, error) {
	list, err := q.page(ctx, q.guarantee, "")
	switch {
	case q.guarantee.match == notOlderThan && expired(err):
		// An old server takes a version with a limit as exact. The most recent state
		// is not older than any.
		list, err = q.page(ctx, MostRecent, "")
	case q.guarantee.match == exact && err == nil && q.options.limit() == 0 && list.GetResourceVersion() != q.guarantee.version:
		// An old server takes a version without a limit as not older than.
		q.options.Limit = DefaultLimit
		list, err = q.page(ctx, q.guarantee, "")
	}
	if err != nil {
		if expired(err) { // no page has come, so that there is nothing to begin again
			err = q.guarantee.typed(err)
		}
		return list, err
	}
	return list, q.guarantee.verify(list.GetResourceVersion())
}

// next asks for the page at a token, or, if that has expired and the caller allows
// it, for one of a newer state.
func (q query[L]) next(ctx context.Context, token string, inconsistent bool) (L, bool, error) {
	list, err := q.page(ctx, MostRecent, token)
	for range q.options.retries() + 1 {
		rest := restToken(err)
		if !expired(err) || rest == "" || !q.options.Inconsistent || q.guarantee.match == exact {
			break
		}
		inconsistent = true
		list, err = q.page(ctx, MostRecent, rest)
	}
	return list, inconsistent, err
}

// moved judges a page of another version than the one before it.
func (q query[L]) moved(from, to string, inconsistent bool) error {
	if !inconsistent {
		return q.broken(to, fmt.Sprintf("a page after one of version %q", from))
	}
	if older, err := resourceversion.Less(to, from); err == nil && older {
		return q.broken(to, fmt.Sprintf("the rest of a list of version %q is older", from))
	}
	return q.guarantee.verify(to)
}

func (q query[L]) broken(got, detail string) error {
	return &Error{Kind: NotHonoured, Guarantee: q.guarantee, Got: got, Detail: detail}
}

// page requests one page, and retries where that may help. A continue token contains its
// version, and servers refuse a second one, so g is MostRecent with a token.
func (q query[L]) page(ctx context.Context, g Guarantee, token string) (list L, err error) {
	opts := q.options.selection()
	opts.Limit = q.options.limit()
	opts.Continue = token
	g.set(&opts)
	r := reaching[L]{query: q, guarantee: g}
	err = q.options.repeat(ctx, func(ctx context.Context) error {
		list, err = r.call(ctx, func(ctx context.Context) (L, error) { return q.client.List(ctx, opts) })
		return err
	})
	return list, err
}

func (o Options) selection() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector}
}
