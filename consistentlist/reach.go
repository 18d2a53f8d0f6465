package consistentlist

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

// A server that has not reached a version waits for some seconds, and then responds with 504 with
// Retry-After. A retry helps if one of several servers lags; it does not help if the version is
// of another server, or newer than a backup that was restored. client-go retries silently, up
// to ten times. So after two tries, the server is asked for its most recent version. If that is
// older, further retries are useless.

// reachTries is how often a version is requested before the server is asked for its most recent
// one.
const reachTries = 2

// errAgain is the cause of a request that a client began to repeat by itself.
var errAgain = errors.New("the server asks to come again")

// untilAgain returns a context that ends with errAgain when more requests than some
// are sent with it. Clients without a network never end it.
func untilAgain(ctx context.Context, tries int32) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	var sent atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if sent.Add(1) > tries {
			cancel(errAgain)
		}
	}})
	return ctx, func() { cancel(nil) }
}

// reaching makes calls for a list at the version of a guarantee.
type reaching[L Collection] struct {
	query[L]
	guarantee Guarantee
	calls     int
	asked     bool // how far the server has got
}

// call makes one of them.
func (r *reaching[L]) call(ctx context.Context, list func(context.Context) (L, error)) (L, error) {
	if r.asked || r.guarantee.version == "" {
		return list(ctx)
	}
	r.calls++
	tries, cancel := untilAgain(ctx, reachTries)
	defer cancel()
	got, err := list(tries)
	again := err != nil && context.Cause(tries) == errAgain
	if !again && !(tooLarge(err) && r.calls == reachTries) {
		return got, err
	}
	r.asked = true
	if behind := r.behind(ctx, r.guarantee); behind != nil {
		return got, behind
	}
	if again {
		return list(ctx)
	}
	return got, err
}

// behind asks for the most recent version. Nil means that it is not older than that
// of the guarantee, or is not known.
func (q query[L]) behind(ctx context.Context, g Guarantee) error {
	once, cancel := untilAgain(ctx, 1)
	defer cancel()
	opts := q.options.selection()
	opts.Limit = 1
	list, err := q.client.List(once, opts)
	if err != nil {
		return nil
	}
	now := list.GetResourceVersion()
	if older, err := resourceversion.Less(now, g.version); err != nil || !older {
		return nil
	}
	return &Error{Kind: NotReached, Guarantee: g, Got: now, Detail: "the server's most recent version is older"}
}
