package etcdsnapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	bolt "go.etcd.io/bbolt"
)

// Reader reads a snapshot file that a Writer made. It is not safe for concurrent use.
type Reader struct {
	db *bolt.DB // nil: that of a Writer
	tx *bolt.Tx
	// size of the file in bytes.
	size int64
}

// sectorBytes divides the size of a database: a remainder of the file is the checksum. Restores
// rely on it.
const sectorBytes = 512

// Open opens a file, and compares it with its checksum. A damaged database whose checksum is right can end the
// process, as with bbolt itself.
func Open(path string) (*Reader, error) {
	size, err := checkSum(path)
	if err != nil {
		return nil, fmt.Errorf("the snapshot %s %w", path, err)
	}
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("the snapshot %s: %w", path, err)
	}
	tx, err := db.Begin(false)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r := &Reader{db: db, tx: tx, size: size}
	for _, b := range [][]byte{keyBucket, metaBucket, leaseBucket} {
		if tx.Bucket(b) == nil {
			return nil, errors.Join(fmt.Errorf("the snapshot %s has no bucket %s", path, b), r.Close())
		}
	}
	return r, nil
}

// checkSum compares the last bytes of a file with the sum of the others.
func checkSum(path string) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("cannot be opened: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("cannot be opened: %w", err)
	}
	size = info.Size()
	if size%sectorBytes != sha256.Size {
		return 0, errors.New("is cut off, or has no checksum")
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, size-sha256.Size); err != nil {
		return 0, fmt.Errorf("cannot be read: %w", err)
	}
	sum, err := io.ReadAll(io.LimitReader(f, sha256.Size+1))
	if err != nil {
		return 0, fmt.Errorf("cannot be read: %w", err)
	}
	if !bytes.Equal(sum, h.Sum(nil)) {
		return 0, errors.New("is damaged: it differs from its checksum")
	}
	return size, nil
}

// Size is that of the file in bytes.
func (r *Reader) Size() int64 { return r.size }

// Count is the number of versions and deletions.
func (r *Reader) Count() int { return r.tx.Bucket(keyBucket).Stats().KeyN }

// At returns the change of a key at a revision; false: there is none.
func (r *Reader) At(revision int64, key string) (Version, bool, error) {
	for v, err := range changesOf(r.tx.Bucket(keyBucket).Cursor(), revision) {
		if err != nil || string(v.Key) == key {
			return v, err == nil, err
		}
	}
	return Version{}, false, nil
}

// Bounds returns the newest revision, and the oldest one that can be read, zero if nothing was compacted.
func (r *Reader) Bounds() (head, floor int64, err error) {
	if key, _ := r.tx.Bucket(keyBucket).Cursor().Last(); key != nil {
		p, err := cutPlace(key)
		if err != nil {
			return 0, 0, err
		}
		head = p.revision
	}
	if b := r.tx.Bucket(metaBucket).Get(finishedKey); b != nil {
		p, err := cutPlace(b)
		if err != nil {
			return 0, 0, err
		}
		floor = p.revision
	}
	return max(head, floor), floor, nil
}

// Leases is the number of leases.
func (r *Reader) Leases() int { return r.tx.Bucket(leaseBucket).Stats().KeyN }

// Close closes the file.
func (r *Reader) Close() error {
	err := r.tx.Rollback()
	if r.db != nil {
		err = errors.Join(err, r.db.Close())
	}
	return err
}
