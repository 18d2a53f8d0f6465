package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Log is a store.Log in a directory. Compact may be called while Append runs.
type Log struct {
	o         Options
	db        *pebble.DB
	closeFS   func() error
	blocks    *blockCache
	space     space
	memTable  uint64 // size of Pebble's memtables, in bytes
	failure   failure
	committer committer

	// mu is held while a batch is made and written: it orders Append and the batches of
	// Compact.
	mu sync.Mutex
	// mu also guards hash, the buffers and actors.
	hash   hasher
	record []byte
	origin []byte
	// actors has the revisions of actors' definitions.
	actors map[*store.Actor]store.Revision

	// head is the head of the last batch, stored with mu held. Readers may rely on its
	// revision and floor.
	head atomic.Pointer[head]
	// durable is the last head that was synced; the file HEAD may copy it.
	durable atomic.Pointer[head]

	wals  wals
	slots *slotFile // nil if the disk has no room for SYNCED

	copyHead   chan struct{} // has a value when HEAD should be renewed
	wrote      chan struct{} // has a value when HEAD should be renewed within HeadInterval
	stopCopier chan struct{}
	copierDone chan struct{}

	renewing sync.Mutex // held while HEAD is renewed; it also guards the next two
	copied   *witness   // the content of HEAD, nil if unknown
	stale    bool       // HEAD could not be renewed

	compacting sync.Mutex // one Compact at a time

	readers readers
}

var _ store.Log = (*Log)(nil)

var errReadOnly = errors.New("the log was opened for reading alone")

// Open opens the log in the directory, or makes a new one. A log that does not match its
// checksums is refused with a *DamageError. The caller ensures that no other process uses
// the directory (Pebble has a lock of its own, too).
func Open(ctx context.Context, o Options) (*Log, error) {
	l := &Log{
		o:          o.withDefaults(),
		copyHead:   make(chan struct{}, 1),
		wrote:      make(chan struct{}, 1),
		stopCopier: make(chan struct{}),
		copierDone: make(chan struct{}),
		actors:     map[*store.Actor]store.Revision{},
	}
	l.failure.done = make(chan struct{})
	l.space = space{fs: l.o.FS, dir: l.o.Dir, minFree: l.o.MinFreeBytes, reserve: l.o.ReserveBytes, log: l.o.Logger, stop: l.stopCopier}

	w, err := l.readWitness()
	if err != nil {
		return nil, err
	}
	synced, err := readSlots(l.o.FS, l.o.FS.PathJoin(l.o.Dir, syncedFile))
	if err != nil {
		return nil, err
	}
	w = withSynced(w, synced)
	exists, err := l.examine(ctx, w)
	if err != nil {
		return nil, err
	}
	switch {
	case exists:
	case l.o.ReadOnly:
		return nil, fmt.Errorf("log %s: there is no log", l.o.Dir)
	default:
		if err := makeDir(l.o.FS, l.o.Dir, l.pebbleDir()); err != nil {
			return nil, err
		}
	}
	l.memTable = l.space.scale()
	if l.o.ReadOnly {
		l.space.minFree = 0 // nothing is written, so nothing is short
	} else {
		l.space.open() // before Pebble: on a full disk it needs the reserve to open
	}
	if err := l.openPebble(exists); err != nil {
		return nil, err
	}
	l.committer.start()
	if err := l.start(ctx, w); err != nil {
		err = errors.Join(err, l.closePebble())
		l.committer.stop()
		return nil, err
	}
	return l, nil
}

func (l *Log) pebbleDir() string { return l.o.FS.PathJoin(l.o.Dir, "pebble") }
func (l *Log) headPath() string  { return l.o.FS.PathJoin(l.o.Dir, headFile) }

// readWitness reads HEAD; nil if there is none. With AcceptDataLoss a damaged HEAD counts as
// an empty one, which shows that there was a log.
func (l *Log) readWitness() (*witness, error) {
	w, err := readHeadFile(l.o.FS, l.headPath())
	var damage *DamageError
	if !errors.As(err, &damage) {
		return w, err
	}
	if !l.o.AcceptDataLoss {
		damage.Err = fmt.Errorf("%w%s", damage.Err, acceptHint)
		return nil, damage
	}
	l.o.Logger.Warn("log: data loss accepted: what is missing, if anything, is not known", "error", err)
	return &witness{path: l.headPath()}, nil
}

func (l *Log) openPebble(mustExist bool) error {
	o, closeFS := l.pebbleOptions(mustExist)
	l.closeFS = closeFS
	var db *pebble.DB
	err := l.apart(func() (err error) {
		db, err = pebble.Open(l.pebbleDir(), o)
		return err
	})
	if err == nil {
		l.db = db
		return nil
	}
	if f := l.failure.get(); f != nil {
		return f // Pebble may still be running: there is nothing to close
	}
	return l.openError(errors.Join(err, closeFS()))
}

// openError is why Pebble did not open: damage, or an error of the machine.
func (l *Log) openError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && !oserror.IsNotExist(err) {
		return fmt.Errorf("log %s: %w", l.o.Dir, err)
	}
	return l.damaged("what Pebble looks for when it starts", err)
}

// apart runs f on its own goroutine. When the log fails, Pebble may end that goroutine (see
// pebbleLogger.Fatalf) or never return. Its deferred cleanup may then panic because its
// other goroutines are still running; such a panic only means that the log failed.
func (l *Log) apart(f func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if l.failure.get() != nil {
				_ = recover()
			}
		}()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-l.failure.done:
		return l.failure.err
	}
}

// start checks Pebble's head, and starts the background goroutines.
func (l *Log) start(ctx context.Context, w *witness) error {
	h, err := l.loadHead()
	if err != nil {
		return err
	}
	if err := l.checkWitness(w, h); err != nil {
		return err
	}
	if err := l.checkTail(ctx, h); err != nil {
		return err
	}
	if l.o.Upgrade != nil {
		if err := l.o.Upgrade(); err != nil {
			return err
		}
	}
	l.head.Store(&h)
	if l.o.ReadOnly {
		close(l.copierDone)
		return nil
	}
	if h.sequence == 0 {
		if err := l.begin(); err != nil {
			return err
		}
	}
	// The data was in the WAL, but perhaps not synced before a crash. Pebble replayed it
	// into tables, which are synced, before it opened.
	l.durable.Store(l.head.Load())
	if w == nil || w.head != *l.head.Load() || w.path != l.headPath() {
		err := errors.Join(writeHeadFile(l.o.FS, l.o.Dir, l.witness(l.liveWALs())), syncDir(l.o.FS, l.o.Dir))
		if errors.Is(err, syscall.ENOSPC) && w != nil {
			l.o.Logger.Warn("log: the copy of the head was not renewed", "error", err) // the old HEAD is still a valid lower bound
		} else if err != nil {
			return err
		}
	}
	if err := l.openSlots(); err != nil {
		return err
	}
	if w != nil && h.revision > 0 && !l.o.AcceptDataLoss {
		l.o.Logger.Info("log: checked, nothing that was acknowledged is missing", "revision", uint64(h.revision))
	}
	wake(l.wrote)
	go l.runCopier()
	return nil
}

// openSlots makes SYNCED. A full disk is no error: then HEAD alone has a bound of the durable revision.
func (l *Log) openSlots() (err error) {
	l.slots, err = openSlots(l.o.FS, l.o.Dir, l.syncedNow())
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	l.o.Logger.Warn("log: SYNCED was not made", "error", err)
	if err := l.o.FS.Remove(l.o.FS.PathJoin(l.o.Dir, syncedFile)); !oserror.IsNotExist(err) {
		return err
	}
	return nil
}

// syncedNow is the content of a slot of SYNCED.
func (l *Log) syncedNow() witness {
	w := witness{wals: []walPosition{l.wals.newest()}} // the position first, so that the head covers it
	w.head = *l.durable.Load()
	return w
}

// begin writes the first head of a new log, and makes Pebble start a new WAL: its first one
// has an older format, whose chunks do not record the synced part before them.
func (l *Log) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.db.NewBatch()
	defer batch.Close()
	if err := l.commit(batch, head{}, pebble.Sync); err != nil {
		return err
	}
	return l.committer.do(&l.failure, l.db.Flush)
}

// loadHead reads the head. A new log has a zero one.
func (l *Log) loadHead() (head, error) {
	b, closer, err := l.db.Get(headKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return head{}, nil
	}
	if err != nil {
		return head{}, l.damaged("the head", err)
	}
	defer closer.Close()
	h, err := readHead(b)
	if err != nil {
		return head{}, l.damaged("the head", err)
	}
	return h, nil
}

// Usable returns why the log has failed, nil if it has not. A log whose directory is another one fails.
func (l *Log) Usable() error {
	if l.o.Held != nil {
		if err := l.o.Held(); err != nil {
			l.failure.set(fmt.Errorf("log %s: %w", l.o.Dir, err))
		}
	}
	return l.failure.get()
}

// Append implements store.Log.
//
// It ignores the context: a group that was begun is finished.
func (l *Log) Append(_ context.Context, group []store.Entry, mark *store.Mark) error {
	if err := l.Usable(); err != nil {
		return err
	}
	if len(group) == 0 && mark == nil {
		return nil
	}
	if l.o.ReadOnly {
		return errReadOnly
	}
	size := groupBytes(group)
	scarce, err := l.space.admit(deletesOnly(group), size)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()

	batch := l.db.NewBatchWithSize(size)
	defer batch.Close()
	next := *l.head.Load()
	if err := l.addGroup(batch, &next, group, scarce); err != nil {
		err = fmt.Errorf("log %s: %w", l.o.Dir, err)
		l.failure.set(err)
		return err
	}
	if mark != nil {
		l.record = appendMark(l.record[:0], &l.hash, *mark)
		if err := batch.Set(appendMarkKey(nil, mark.Revision), l.record, nil); err != nil {
			return err
		}
	}
	return l.commit(batch, next, pebble.Sync)
}

func deletesOnly(group []store.Entry) bool {
	for i := range group {
		if group[i].Object != nil && !group[i].Deleting {
			return false
		}
	}
	return len(group) > 0
}

// groupBytes is about the most bytes that the batch of a group takes.
func groupBytes(group []store.Entry) int {
	n := 1 << 10
	for i := range group {
		e := &group[i]
		n += 4*(len(e.Collection)+len(e.Key)) + 256
		if e.Origin != nil {
			n += originFixed + store.MaxAuditID
			if a := e.Origin.Actor; a != nil {
				n += len(a.User) + len(a.UserAgent) + len(a.FieldManager) + len(a.Subresource) + len(a.Loop) + len(a.Impersonator)
			}
		}
		if e.Object != nil {
			n += e.Object.Len()
		}
		if e.Before != nil {
			n += e.Before.Len()
		}
	}
	return n
}

// commit writes a batch with the head that follows from it, and publishes the
// head. The caller holds mu.
func (l *Log) commit(batch *pebble.Batch, next head, how *pebble.WriteOptions) error {
	next.sequence++
	l.record = next.append(l.record[:0])
	if err := batch.Set(headKey, l.record, nil); err != nil {
		return err
	}
	err := l.committer.do(&l.failure, func() error { return l.db.Apply(batch, how) })
	if err != nil {
		err = fmt.Errorf("log %s: %w", l.o.Dir, err)
		l.failure.set(err)
		return l.failure.get()
	}
	l.head.Store(&next)
	if how.Sync {
		l.durable.Store(&next)
		if err := l.slots.write(l.syncedNow()); err != nil {
			l.o.Logger.Warn("log: SYNCED was not renewed", "error", err)
		}
		if next.sequence > 1 && l.wals.begun.Swap(false) {
			l.renewHead(true) // before the first write in a write-ahead log is acknowledged
		}
		wake(l.wrote)
	}
	return nil
}

// addGroup adds the changes to the batch and moves the head over them.
//
// If space is scarce, the floor rises to this group, and replaced versions are not written to
// history. Otherwise the deletion of a large object would need as much space as the object.
func (l *Log) addGroup(batch *pebble.Batch, next *head, group []store.Entry, scarce bool) error {
	var key []byte
	for i := range group {
		e := &group[i]
		if err := checkEntry(e, next.revision); err != nil {
			return err
		}
		key = appendCurrentKey(key[:0], e.Collection, e.Key)
		place := key[1:]
		h := header{place: place, kind: kindOf(e)}
		if e.Origin != nil {
			next.time = max(next.time, e.Origin.Time.UnixMicro())
		}
		if e.Origin != nil && !scarce { // otherwise no read reaches it
			o, size, err := l.addOrigin(batch, e)
			if err != nil {
				return err
			}
			l.origin = appendOrigin(l.origin[:0], o)
			h.origin = l.origin
			next.historyBytes += uint64(size)
		}
		if e.Before != nil {
			h.before = e.Before.Modified
			h.beforeBytes = uint32(1 + len(place) + 8 + replacedFixed + e.Before.Len())
			sum := l.hash.version(place, e.Before)
			if !scarce {
				addReplaced(batch, e, l.hash.checksum(sum, e.Revision))
			}
			next.sum -= sum
			next.objects--
		}
		if e.Object != nil {
			h.sum = l.hash.version(place, e.Object)
			op := batch.SetDeferred(len(key), currentFixed+e.Object.Len())
			copy(op.Key, key)
			putCurrent(op.Value, h.sum, e.Object)
			if err := op.Finish(); err != nil {
				return err
			}
			next.sum += h.sum
			next.objects++
		} else if err := batch.Delete(key, nil); err != nil {
			return err
		}
		l.record = appendHeader(l.record[:0], h)
		next.chain = l.hash.chain(next.chain, e.Revision, l.record[8:])
		be.PutUint64(l.record, next.chain)
		next.revision = e.Revision
		next.historyBytes += h.size() + uint64(h.beforeBytes)
		if err := batch.Set(appendHeaderKey(key[:0], e.Revision), l.record, nil); err != nil {
			return err
		}
	}
	if scarce {
		next.floor = next.revision
	}
	return nil
}

// addReplaced adds the version that an entry replaced or deleted.
func addReplaced(batch *pebble.Batch, e *store.Entry, checksum uint64) {
	n := 1 + len(e.Collection) + 1 + len(e.Key) + 1 + 8
	op := batch.SetDeferred(n, replacedFixed+e.Before.Len())
	appendReplacedKey(op.Key[:0], e.Collection, e.Key, e.Before.Modified)
	putReplaced(op.Value, checksum, e.Revision, e.Before)
	_ = op.Finish() // fails for indexed batches alone
}

func kindOf(e *store.Entry) kind {
	switch {
	case e.Before == nil:
		return kindCreated
	case e.Object == nil:
		return kindDeleted
	}
	return kindUpdated
}

// checkEntry refuses an entry that could not be read back.
func checkEntry(e *store.Entry, last store.Revision) error {
	if err := checkPlace(e.Collection, e.Key); err != nil {
		return err
	}
	if e.Revision <= last {
		return fmt.Errorf("revision %d of %s %s does not follow %d", e.Revision, e.Collection, e.Key, last)
	}
	if e.Object == nil && e.Before == nil {
		return fmt.Errorf("revision %d of %s %s deletes nothing", e.Revision, e.Collection, e.Key)
	}
	if e.Object != nil && e.Object.Modified != e.Revision {
		return fmt.Errorf("revision %d of %s %s has an object as of %d", e.Revision, e.Collection, e.Key, e.Object.Modified)
	}
	for _, o := range [...]*store.Object{e.Object, e.Before} {
		if o == nil {
			continue
		}
		if checkRevisionAt(o) != nil || o.Len() > math.MaxInt32 {
			return fmt.Errorf("revision %d of %s %s: %d bytes, with the revision at %d", e.Revision, e.Collection, e.Key, o.Len(), o.RevisionAt)
		}
	}
	return nil
}

// Broken implements store.Log.
func (l *Log) Broken() <-chan struct{} { return l.failure.done }

// Usage implements store.Log.
func (l *Log) Usage() store.Usage {
	if !l.readers.acquire() {
		return store.Usage{}
	}
	defer l.readers.release()
	u := store.Usage{
		HistoryBytes: int64(l.head.Load().historyBytes),
		TotalBytes:   int64(l.db.Metrics().DiskSpaceUsage()),
	}
	if free, ok := l.space.free(); ok {
		u.FreeBytes, u.NeededBytes = int64(free), int64(l.space.minFree)
	}
	return u
}

// Floor implements store.Log.
func (l *Log) Floor() store.Revision { return l.head.Load().floor }

// Short implements store.Log.
func (l *Log) Short() int64 {
	free, ok := l.space.free()
	if want := 2 * l.space.minFree; ok && free < want {
		return int64(want - free)
	}
	return 0
}

// Close implements store.Log. It waits for the reads under way, which end with
// ErrClosed at their next step.
func (l *Log) Close() error {
	if !l.readers.close() {
		return store.ErrClosed
	}
	close(l.stopCopier)
	<-l.copierDone
	l.compacting.Lock()
	defer l.compacting.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Usable(); err != nil {
		return err
	}
	l.committer.stop()
	live := l.liveWALs()
	if err := errors.Join(l.closePebble(), l.slots.close()); err != nil {
		return fmt.Errorf("log %s: %w", l.o.Dir, err)
	}
	if l.o.ReadOnly {
		return nil
	}
	// Closing the WAL synced it.
	l.durable.Store(l.head.Load())
	return errors.Join(writeHeadFile(l.o.FS, l.o.Dir, l.witness(live)), syncDir(l.o.FS, l.o.Dir))
}

// closePebble closes Pebble unless the log failed: Pebble may then hold locks that it never
// releases.
func (l *Log) closePebble() error {
	err := l.apart(l.db.Close)
	if f := l.failure.get(); f != nil {
		return f
	}
	return errors.Join(err, l.closeFS())
}

// readers counts the reads under way.
type readers struct {
	mu     sync.Mutex
	n      sync.WaitGroup // added to under mu, and only while not closed
	closed atomic.Bool
}

// acquire registers a read; false when the log is closed.
func (r *readers) acquire() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return false
	}
	r.n.Add(1)
	return true
}

func (r *readers) release() { r.n.Done() }

// close refuses new reads and waits for those under way; false when it was
// called before.
func (r *readers) close() bool {
	r.mu.Lock()
	first := !r.closed.Swap(true)
	r.mu.Unlock()
	r.n.Wait()
	return first
}
