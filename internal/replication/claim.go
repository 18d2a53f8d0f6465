package replication

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// The namespace kube-system is in every server, and its UID is that of the cluster.
const clusterCollection, clusterKey = "namespaces", "kube-system"

// claim describes a copy at its newest revision. The server compares it with its own history.
type claim struct {
	at store.Revision
	// change is the digest of the change that the copy ends with, and collection and key are those of its object.
	// Empty: the copy does not have that change, because it begins with this revision.
	change, collection, key string
	// cluster is the UID of the namespace kube-system. Empty: there is none.
	cluster string
}

// claimOf returns the claim of a query.
func claimOf(at store.Revision, q url.Values) claim {
	return claim{at: at, change: q.Get("digest"), collection: q.Get("collection"), key: q.Get("key"), cluster: q.Get("cluster")}
}

// claimAt returns the claim of a copy that ends with a revision, as a query. The parameter revision has that revision.
func claimAt(ctx context.Context, copied store.Log, revision string, at store.Revision) (url.Values, error) {
	q := url.Values{revision: {strconv.FormatUint(uint64(at), 10)}}
	o, err := copied.Current(clusterCollection, clusterKey)
	if err != nil {
		return nil, &copyError{err}
	}
	if uid := uidOf(o); uid != "" {
		q.Set("cluster", uid)
	}
	if at <= copied.Floor() {
		return q, nil
	}
	for e, err := range copied.Changes(ctx, "", at-1, at) {
		if errors.As(err, new(*store.ExpiredError)) {
			return q, nil // it was compacted just now
		}
		if errors.As(err, new(*encryption.OpenError)) || e.Object.Unreadable() != "" {
			return q, nil // its content is unknown
		}
		if err != nil {
			return nil, &copyError{err}
		}
		q.Set("digest", digestOf(e.Collection, e.Key, at, e.Object))
		q.Set("collection", e.Collection)
		q.Set("key", e.Key)
	}
	return q, nil
}

// uidOf returns the UID of an object, which may be nil.
func uidOf(o *store.Object) string {
	var object struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if o == nil || json.Unmarshal(o.Bytes(), &object) != nil {
		return ""
	}
	return object.Metadata.UID
}
