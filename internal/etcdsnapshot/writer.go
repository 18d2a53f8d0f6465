package etcdsnapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

const (
	// batchBytes and batchVersions bound a transaction, which is in memory.
	batchBytes    = 16 << 20
	batchVersions = 10_000
	// mostPerLease is how many keys end together: etcd deletes them in one transaction.
	mostPerLease = 1000
)

// Writer writes a snapshot file. The file has its name when Commit has returned nil; before, everything is in
// a directory beside it, which Close removes. It is not safe for concurrent use.
type Writer struct {
	path   string
	dir    string   // of the files under way
	db     *bolt.DB // with the versions in the order in which they came, until sorted
	sorted bool

	batch  []record
	bytes  int
	counts map[keyAt]int64 // Version.Count of the batch

	leases map[time.Duration]*lease
	given  int64 // the ID of the last lease
	closed bool
}

// record is a version or, with a revision of zero, a lease.
type record struct {
	place      place
	key, value []byte // of a version, key is Version.Key
}

// keyAt names a version.
type keyAt struct {
	key      string
	revision int64
}

type lease struct {
	id    int64
	given int
}

// Create begins a file. The path must not exist.
func Create(path string) (*Writer, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("the file %s exists: name another one, or remove it", path)
	}
	dir, err := MakePart(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, dir: dir, counts: map[keyAt]int64{}, leases: map[time.Duration]*lease{}}
	if w.db, err = openNew(filepath.Join(dir, "unsorted")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	err = w.db.Update(func(tx *bolt.Tx) error {
		for _, b := range buckets {
			if _, err := tx.CreateBucket(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// MakePart makes a directory for the unfinished parts of a file, beside it.
func MakePart(path string) (string, error) {
	return os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.part")
}

// Parts returns the directories that MakePart made for a file and that are still there: those of processes that were
// killed, or that go on.
func Parts(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), "."+filepath.Base(path)+"."); ok && strings.HasSuffix(rest, ".part") && e.IsDir() {
			all = append(all, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return all, nil
}

// openNew makes a database. Nothing of it is needed after a crash, so it is not synced.
func openNew(path string) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, NoGrowSync: true})
}

// Put adds a version. They may come in any order, but for the versions of one key. Those of one revision are of
// different keys, and keep the order in which they come.
// The Writer sets Version.Count: it continues that of the version with the revision before, zero for a new key.
// A version whose predecessor is not in the file counts as the first one if it created the key, else as the second.
func (w *Writer) Put(v Version, before int64) error {
	if v.Revision <= 0 {
		return fmt.Errorf("the key %q has the revision %d", v.Key, v.Revision)
	}
	var err error
	if v.Count, err = w.count(v, before); err != nil {
		return err
	}
	value, err := v.marshal()
	if err != nil {
		return err
	}
	w.batch = append(w.batch, record{place{revision: v.Revision, deleted: v.deleted()}, v.Key, value})
	w.bytes += len(value)
	w.counts[keyAt{string(v.Key), v.Revision}] = v.Count
	if w.bytes >= batchBytes || len(w.batch) >= batchVersions {
		return w.flush()
	}
	return nil
}

// count returns the number of a version among those of its key.
func (w *Writer) count(v Version, before int64) (int64, error) {
	switch {
	case before == 0 && v.Created == v.Revision:
		return 1, nil
	case before == 0 || v.deleted():
		return 2, nil
	}
	if n := w.counts[keyAt{string(v.Key), before}]; n != 0 {
		return n + 1, nil
	}
	count := int64(2)
	err := w.db.View(func(tx *bolt.Tx) error {
		for old, err := range changesOf(tx.Bucket(keyBucket).Cursor(), before) {
			if err != nil {
				return err
			}
			if bytes.Equal(old.Key, v.Key) {
				count = old.Count + 1
			}
		}
		return nil
	})
	return count, err
}

// Lease returns a lease of so many seconds for a key that ends by itself. Up to 1,000 keys share one.
func (w *Writer) Lease(ttl time.Duration) int64 {
	l := w.leases[ttl]
	if l == nil || l.given == mostPerLease {
		w.given++
		l = &lease{id: w.given}
		w.leases[ttl] = l
		key, value := leaseRecord(l.id, int64((ttl+time.Second-1)/time.Second))
		w.batch = append(w.batch, record{key: key, value: value})
	}
	l.given++
	return l.id
}

// flush writes the batch.
func (w *Writer) flush() error {
	slices.SortStableFunc(w.batch, func(a, b record) int { return cmp.Compare(a.place.revision, b.place.revision) })
	err := w.db.Update(func(tx *bolt.Tx) error {
		keys, leases := tx.Bucket(keyBucket), tx.Bucket(leaseBucket)
		for _, r := range w.batch {
			if r.place.revision == 0 {
				if err := leases.Put(r.key, r.value); err != nil {
					return err
				}
				continue
			}
			for other, err := range changesOf(keys.Cursor(), r.place.revision) {
				if err != nil {
					return err
				}
				if bytes.Equal(other.Key, r.key) {
					return fmt.Errorf("there are two changes of %q at revision %d", r.key, r.place.revision)
				}
				r.place.index++
			}
			if err := keys.Put(r.place.key(), r.value); err != nil {
				return err
			}
		}
		return nil
	})
	w.batch, w.bytes = w.batch[:0], 0
	clear(w.counts)
	return err
}

// Sort writes the versions that were put so far in the order of the revisions, with the oldest
// revision that can be read; zero means that there are no older versions. It returns a Reader of
// them, which is closed before the next call. Versions that are put later have higher revisions.
// Sort is called once, or not at all.
func (w *Writer) Sort(floor int64) (*Reader, error) {
	if err := w.sort(floor); err != nil {
		return nil, err
	}
	tx, err := w.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &Reader{tx: tx, size: tx.Size()}, nil
}

func (w *Writer) sort(floor int64) error {
	if err := w.flush(); err != nil {
		return err
	}
	if floor > 0 {
		err := w.db.Update(func(tx *bolt.Tx) error {
			b, at := tx.Bucket(metaBucket), place{revision: floor}.key()
			return errors.Join(b.Put(finishedKey, at), b.Put(scheduledKey, at))
		})
		if err != nil {
			return err
		}
	}
	w.sorted = true
	return w.compact()
}

// Finish writes the file, with the oldest revision that can be read, as Sort does it unless it was called. It
// returns a Reader of the file, which has its name after Commit.
func (w *Writer) Finish(floor int64) (*Reader, error) {
	var err error
	if w.sorted {
		err = w.flush()
	} else {
		err = w.sort(floor)
	}
	if err != nil {
		return nil, err
	}
	err = w.db.Close()
	w.db = nil
	if err != nil {
		return nil, err
	}
	if err := appendSum(w.finished()); err != nil {
		return nil, err
	}
	return Open(w.finished())
}

func (w *Writer) finished() string { return filepath.Join(w.dir, "snapshot") }

// compact copies the database in the order of its keys, without the free pages. It goes on with the copy.
func (w *Writer) compact() error {
	sorted, err := openNew(w.finished())
	if err != nil {
		return err
	}
	err = bolt.Compact(sorted, w.db, batchBytes)
	err = errors.Join(err, w.db.Close())
	if w.db = sorted; err != nil {
		return err
	}
	return os.Remove(filepath.Join(w.dir, "unsorted"))
}

// appendSum appends the checksum of a file, and makes it durable.
func appendSum(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err = io.Copy(h, f); err == nil {
		_, err = f.Write(h.Sum(nil))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Commit gives the finished file its name. It is durable when Commit returns nil.
func (w *Writer) Commit() error {
	if _, err := os.Lstat(w.path); err == nil {
		return fmt.Errorf("the file %s exists: it was made meanwhile", w.path)
	}
	return atomicfile.Rename(w.finished(), w.path)
}

// Close removes temporary files. It may be called twice.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	var err error
	if w.db != nil {
		err = w.db.Close()
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}
