// Package replication gives followers the changes of a server, and makes their writes. A follower is
// another server with a copy of the objects, in a data directory of its own.
//
//	GET  Path/head?revision=R&CLAIM  the newest revision. With a copy that ends with revision R: whether it can be
//	                                 continued
//	GET  Path/changes?after=R&CLAIM  all changes after R, as they happen
//	POST Path/transactions           a transaction, which is made or refused
//
// CLAIM describes the copy at revision R, so that a server which was replaced, or restored to an earlier state, does
// not continue the copy of another history: see claim.
//
// The copy begins with a backup, so it has the certificates and keys of the server, too.
package replication

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Path is the prefix of the paths of all requests. It has the version of the messages.
const Path = "/replication/v1"

const (
	// MaxFollowers limits the streams of changes.
	MaxFollowers = 16
	// heartbeat is the longest pause between two messages.
	heartbeat = time.Second
	// messageBytes is when a message is sent although there are more changes. One that is larger than that
	// has one change.
	messageBytes   = 1 << 20
	messageChanges = 256
	// A follower holds changes back until it has all of their transactions, but not more than this.
	heldChanges = 4 * store.MaxTxnWrites
	heldBytes   = MaxTransaction
)

// Server responds to the requests of followers. Its methods are safe for concurrent use.
type Server struct {
	// Check returns why a transaction is rejected, in addition to the store's checks. Nil rejects
	// none. It is set before the first request.
	Check func(*store.Txn) error
	// Facts returns the settings that followers must have, too, by name; nil means none. It is set
	// before the first request.
	Facts func() (map[string]string, error)

	store *store.Store
	began store.Revision
	run   string // identifies this run of the server
	slots chan struct{}
}

// NewServer returns a server for a store that was just opened.
func NewServer(s *store.Store) *Server {
	return &Server{store: s, began: s.Any().Revision(), run: rand.Text(), slots: make(chan struct{}, MaxFollowers)}
}

// Head is the response to a request for the newest revision.
type Head struct {
	Revision store.Revision `json:"revision"`
	// Run identifies the run of the server: the time between a start and a stop.
	Run string `json:"run"`
	// Copy is set if the request described a copy.
	Copy Copy `json:"copy,omitempty"`
	// Facts are set if the request has the parameter facts: the settings that followers must have,
	// too.
	Facts map[string]string `json:"facts,omitempty"`
}

// Copy is how a copy relates to the server.
type Copy string

// The values of Copy.
const (
	CopyContinues Copy = "continues" // it is an earlier state of the server
	CopyExpired   Copy = "expired"   // the history of the server begins after it
	CopyDiverged  Copy = "diverged"  // it has changes that the server does not have
)

// Decision is the response to a transaction.
type Decision struct {
	Made bool `json:"made"`
	// First and Last are the revisions of the transaction. Of one that was not made, Last is one at which its
	// conditions did not hold.
	First store.Revision `json:"first,omitempty"`
	Last  store.Revision `json:"last"`
}

// ServeHead responds to a request for the newest revision.
func (s *Server) ServeHead(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		fail(w, newStatus(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the path wants another method than "+r.Method))
		return
	}
	response := Head{Revision: s.store.Any().Revision(), Run: s.run}
	if text := r.URL.Query().Get("revision"); text != "" {
		at, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			fail(w, apierrors.NewBadRequest(fmt.Sprintf("revision=%q is not a number", text)))
			return
		}
		if response.Copy, err = s.compare(r.Context(), claimOf(store.Revision(at), r.URL.Query())); err != nil {
			fail(w, statusOf(err))
			return
		}
	}
	if r.URL.Query().Has("facts") && s.Facts != nil {
		var err error
		if response.Facts, err = s.Facts(); err != nil {
			fail(w, statusOf(err))
			return
		}
	}
	send(w, response)
}

// compare compares a copy with the server.
func (s *Server) compare(ctx context.Context, c claim) (Copy, error) {
	floor, head := s.store.Bounds()
	switch {
	case c.at > head || !s.sameCluster(c):
		return CopyDiverged, nil
	case c.at < floor:
		return CopyExpired, nil
	}
	same, err := true, error(nil)
	if c.change != "" {
		if c.at > floor {
			same, err = s.sameChange(ctx, c)
		} else { // the change is not in the history any more
			same, err = s.sameObject(ctx, c)
		}
	}
	switch {
	case errors.As(err, new(*store.ExpiredError)):
		return CopyExpired, nil // the history was compacted meanwhile
	case err != nil:
		return "", err
	case !same:
		return CopyDiverged, nil
	}
	return CopyContinues, nil
}

// sameCluster reports whether the copy is one of the same cluster: of this server, or of one with the same beginning.
func (s *Server) sameCluster(c claim) bool {
	return c.cluster == "" || c.cluster == uidOf(s.store.Any().Get(clusterCollection, clusterKey))
}

// sameChange reports whether the newest change of the copy is in the history of the server.
func (s *Server) sameChange(ctx context.Context, c claim) (bool, error) {
	feed, err := s.store.Feed(c.at - 1)
	if err != nil {
		return false, err
	}
	defer feed.Close()
	var buf [1]store.CollectionChange
	n, err := feed.TryNext(ctx, buf[:])
	if err != nil || n == 0 || buf[0].Revision != c.at {
		return false, err
	}
	return digestOf(buf[0].Collection, buf[0].Key(), c.at, buf[0].After) == c.change, nil
}

// sameObject reports whether the server had an object as the newest change of the copy left it.
func (s *Server) sameObject(ctx context.Context, c claim) (bool, error) {
	o, err := s.objectAt(ctx, c.collection, c.key, c.at)
	if err != nil || o != nil && o.Modified != c.at {
		return false, err
	}
	return digestOf(c.collection, c.key, c.at, o) == c.change, nil
}

// objectAt returns an object as it was at a revision, nil if there was none.
func (s *Server) objectAt(ctx context.Context, collection, key string, at store.Revision) (*store.Object, error) {
	v, err := s.store.Exact(ctx, collection, at, 0)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	for o, err := range v.Scan(key, "") {
		if err != nil || o.Key != key {
			return nil, err
		}
		return o, nil
	}
	return nil, nil
}

// digestOf identifies a change: two of one revision are the same if their digests are.
func digestOf(collection, key string, at store.Revision, o *store.Object) string {
	var e encoder
	e.string(collection)
	e.string(key)
	e.at(at)
	if o != nil {
		e.bytes(o.Bytes())
	}
	sum := sha256.Sum256(e)
	return hex.EncodeToString(sum[:16])
}

// ServeChanges streams changes, until the context of the request ends.
func (s *Server) ServeChanges(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		fail(w, newStatus(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the path wants another method than "+r.Method))
		return
	}
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		fail(w, apierrors.NewBadRequest("after is the revision that the changes follow: want a number"))
		return
	}
	if s.store.HasUnreadable() {
		fail(w, apierrors.NewServiceUnavailable("the server has objects that it cannot read, so it cannot be followed until they are deleted and it has started again"))
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		fail(w, apierrors.NewTooManyRequests(fmt.Sprintf("the server has %d followers, as many as it may have", MaxFollowers), 10))
		return
	}
	how, err := s.compare(r.Context(), claimOf(store.Revision(after), r.URL.Query()))
	switch {
	case err != nil:
		fail(w, statusOf(err))
		return
	case how == CopyExpired:
		fail(w, apierrors.NewResourceExpired(fmt.Sprintf("the history of the server begins after revision %d", after)))
		return
	case how == CopyDiverged:
		fail(w, newStatus(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf("the server does not have what the copy has at revision %d", after)))
		return
	}
	feed, err := s.store.Feed(store.Revision(after))
	if err != nil {
		fail(w, apierrors.NewResourceExpired(err.Error()))
		return
	}
	defer feed.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(runHeader, s.run)
	w.WriteHeader(http.StatusOK)
	c := http.NewResponseController(w)
	if c.Flush() != nil {
		return
	}
	_ = s.stream(r.Context(), feed, w, c.Flush) // the follower asks again
}

// sender sends the changes of a feed.
type sender struct {
	*Server
	w io.Writer
	// through is the newest revision that the follower may show. It is the end of a transaction, unless too much
	// would be held back otherwise.
	through store.Revision
	// changes and bytes are the amounts sent after it.
	changes, bytes int
	buf            encoder
}

// stream sends the changes of a feed, and a heartbeat when there are none.
func (s *Server) stream(ctx context.Context, feed *store.Feed, w io.Writer, flush func() error) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	out := &sender{Server: s, w: w, through: feed.Revision()}
	buf := make([]store.CollectionChange, messageChanges)
	for {
		published := s.store.Any().Revision()
		n, err := feed.TryNext(ctx, buf)
		if err != nil {
			return err
		}
		// No transaction is published in part.
		at := feed.Revision()
		whole := at == published || at == s.store.Any().Revision() || at > published && n < len(buf)
		if err := out.sendAll(buf[:n], at, whole); err != nil {
			return err
		}
		clear(buf[:n])
		if err := flush(); err != nil {
			return err
		}
		select {
		case <-feed.Ready():
		case <-beat.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendAll sends the changes up to a revision as messages: one, if there are none. Whole reports that a transaction
// ends there.
func (s *sender) sendAll(rest []store.CollectionChange, upTo store.Revision, whole bool) error {
	for {
		s.buf = s.buf[:0]
		n := 0
		for n < len(rest) && (n == 0 || len(s.buf) < messageBytes) {
			s.buf.change(rest[n].Collection, rest[n].Change)
			n++
		}
		s.changes, s.bytes = s.changes+n, s.bytes+len(s.buf)
		at := upTo
		if rest = rest[n:]; len(rest) > 0 {
			at = rest[0].Revision - 1
		}
		if whole && len(rest) == 0 || s.changes >= heldChanges || s.bytes >= heldBytes {
			s.through, s.changes, s.bytes = at, 0, 0
		}
		if err := s.send(n); err != nil || len(rest) == 0 {
			return err
		}
		if cap(s.buf) > 2*messageBytes {
			s.buf = nil
		}
	}
}

// send writes a message.
func (s *sender) send(count int) error {
	floor, head := s.store.Bounds()
	var m encoder
	m.at(s.through)
	m.at(floor)
	m.at(max(head, s.through))
	m.uint(uint64(count))
	_, err := s.w.Write(append(binary.AppendUvarint(nil, uint64(len(m)+len(s.buf))), m...))
	if err == nil {
		_, err = s.w.Write(s.buf)
	}
	return err
}

// ServeTransaction makes a transaction.
func (s *Server) ServeTransaction(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		fail(w, newStatus(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the path wants another method than "+r.Method))
		return
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		fail(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	t, err := decodeTxn(b)
	if err == nil {
		err = t.Check()
	}
	if err == nil && s.Check != nil {
		err = s.Check(t)
	}
	if err != nil {
		fail(w, apierrors.NewBadRequest("the transaction: "+err.Error()))
		return
	}
	if r.URL.Query().Get("run") != s.run {
		fail(w, newStatus(http.StatusConflict, reasonOtherRun, "the transaction is for another run of the server: the stream of changes has to begin again first"))
		return
	}
	response, err := s.decide(r.Context(), t)
	if err != nil {
		fail(w, statusOf(err))
		return
	}
	send(w, response)
}

// decide makes or rejects a transaction.
func (s *Server) decide(ctx context.Context, t *store.Txn) (Decision, error) {
	for _, g := range t.Guards {
		if g.Seen < s.began { // the guards of that time are gone
			return Decision{Last: s.store.Any().Revision()}, nil
		}
	}
	made, err := s.store.Apply(ctx, t)
	if errors.As(err, new(*store.TxnError)) {
		return Decision{Last: s.store.Any().Revision()}, nil
	}
	if err != nil {
		return Decision{}, err
	}
	d := Decision{Made: true}
	for _, o := range made {
		if o == nil { // made and deleted by the transaction
			continue
		}
		if d.First == 0 || o.Modified < d.First {
			d.First = o.Modified
		}
		d.Last = max(d.Last, o.Modified)
	}
	if d.Last == 0 {
		d.Last = s.store.Any().Revision()
	}
	return d, nil
}

// The reasons by which a follower distinguishes errors.
const (
	reasonNoSpace = "NoSpace"
	reasonUnfit   = "Unfit"
	reasonQuota   = "StorageQuota"

	reasonOtherRun = "OtherRun"
)

// runHeader has the run of the server in the response to a request for changes. A transaction names it. A server that was
// restored from a backup meanwhile may have another history, in which the revisions of a transaction stand for other
// versions. A stream begins with a comparison. So what a follower knows holds in the run of its stream alone.
const runHeader = "Tidemark-Run"

// statusOf returns the response for an error of the store.
func statusOf(err error) *apierrors.StatusError {
	status := func(code int, reason metav1.StatusReason) *apierrors.StatusError {
		return newStatus(code, reason, err.Error())
	}
	var unfit *store.UnfitError
	var full *store.QuotaError
	switch {
	case errors.Is(err, store.ErrUnknown): // whatever it wraps
		return status(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case errors.As(err, &unfit):
		s := status(http.StatusUnprocessableEntity, reasonUnfit)
		if unfit.Size {
			s.ErrStatus.Code = http.StatusRequestEntityTooLarge
		}
		return s
	case errors.As(err, &full):
		return status(http.StatusInsufficientStorage, reasonQuota)
	case errors.Is(err, store.ErrNoSpace):
		return status(http.StatusInsufficientStorage, reasonNoSpace)
	case errors.Is(err, store.ErrOverloaded):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case errors.Is(err, store.ErrClosed):
		return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	}
	return status(http.StatusInternalServerError, metav1.StatusReasonInternalError) // perhaps it was made
}

func newStatus(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message}}
}

// fail responds with an error.
func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	s := err.ErrStatus
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	b, _ := json.Marshal(s)
	w.Header().Set("Content-Type", "application/json")
	if d := s.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(b)
}

// send responds with a document.
func send(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, apierrors.NewInternalError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b)
}
