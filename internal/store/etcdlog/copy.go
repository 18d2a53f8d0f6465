package etcdlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/s2"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # The copy
//
// Reading and decoding all objects takes most of the start of a server. A server that stops writes them to a
// file as it has them in memory, with the revision. The next start reads the file, and follows etcd from that
// revision. It trusts the file only if
//
//   - its checksums hold, and this program wrote it: another one may read values in another way;
//   - the cluster and the prefix are the same, and the history of the cluster reaches back to the revision;
//   - at that revision the cluster has the newest object of the file with the same content, and as many keys: after
//     the restore of a backup, the same revision is another state. Leases change every few seconds, so the newest
//     object is a few revisions older at most. There is no copy of a state in which it is older than that: then
//     something deletes, and nothing writes.
//
// A start removes the file. So it is used once, and never grows old beside a server.
//
// The file is a line with its name and version, then frames: the length of the payload, its CRC-32C, both of
// four bytes, the low one first, and the payload. The first payload is a copyHeader, the second one a block with the
// newest object alone. The others are compressed blocks of objects of one collection, in any order. Numbers in blocks
// are uvarints, and strings have their length in front:
//
//	collection, and for each object: key, created, modified, revisionAt, 1 if it is outdated, the bytes

const (
	copyMagic = "tidemark copy of etcd 1\n"
	// copyBlock is the size of a block from which on another one begins, and mostCopyBlock the largest one that
	// is read: objects have at most a few MiB.
	copyBlock     = 512 << 10
	mostCopyBlock = 64 << 20
	// The cluster may be ahead of the copy by leastBehind revisions and one for each behindShare objects, at most by
	// mostBehind. A revision takes up to twice as long to follow as an object to read, and a server that starts
	// waits for ten seconds at most until it has followed all.
	leastBehind, behindShare, mostBehind = 1_000, 4, 20_000
	// newestAge is how many revisions older than the copy its newest object may be.
	newestAge = 10
)

// copyHeader describes a copy.
type copyHeader struct {
	Program  string         `json:"program"` // which wrote the file
	Cluster  uint64         `json:"cluster"`
	Prefix   string         `json:"prefix"`
	Revision store.Revision `json:"revision"`
	Objects  int            `json:"objects"`
	Keys     int64          `json:"keys"` // of the cluster below the prefix, at the revision
	Blocks   int            `json:"blocks"`
}

// program identifies the file of this program; empty: it is not known. Open calls it first: later another file may
// have its name.
var program = sync.OnceValue(func() string {
	path := "/proc/self/exe" // of Linux: the file that runs
	info, err := os.Stat(path)
	if err != nil {
		if path, err = os.Executable(); err == nil {
			info, err = os.Stat(path)
		}
	}
	if err != nil {
		return ""
	}
	revision := ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return fmt.Sprintf("%d bytes of %d, revision %s", info.Size(), info.ModTime().UnixNano(), revision)
})

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Keep writes the copy for the next start, if Options.Copy names a file. If it does not succeed until the context
// ends, there is none. The caller makes no transactions meanwhile, and the state has all changes that it has acknowledged.
func (l *Log) Keep(ctx context.Context, s *store.State) error {
	if l.o.Copy == "" || program() == "" || l.seen.cluster.Load() == 0 {
		return nil
	}
	err := l.keep(ctx, s)
	if err != nil {
		err = errors.Join(fmt.Errorf("the copy of the objects for the next start: %w", err), RemoveCopy(l.o.Copy))
	}
	return err
}

// part is the file while it is written.
func part(path string) string { return path + ".part" }

// RemoveCopy removes the file of Options.Copy, if there is one, and the rest of it that a killed process left.
func RemoveCopy(path string) error {
	var errs []error
	for _, name := range []string{path, part(path)} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l *Log) keep(ctx context.Context, s *store.State) error {
	h := copyHeader{Program: program(), Cluster: l.seen.cluster.Load(), Prefix: l.o.Prefix, Revision: s.Revision()}
	var newest *store.Object
	of := ""
	for collection, o := range s.All() {
		if o.Unreadable() != "" {
			return nil // its bytes are not here
		}
		if h.Objects++; newest == nil || o.Modified > newest.Modified {
			newest, of = o, collection
		}
	}
	if newest == nil || h.Revision-newest.Modified > newestAge {
		return nil
	}
	var err error
	if h.Keys, err = l.countAt(ctx, h.Revision); err != nil {
		return err
	}
	if err := RemoveCopy(l.o.Copy); err != nil {
		return err
	}
	f, err := os.OpenFile(part(l.o.Copy), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// The number of blocks is known at the end: the header then takes the place of one of the same length.
	h.Blocks = 1 << 30
	length := h.length()
	begin := append([]byte(copyMagic), h.frame(length)...)
	_, err = f.Write(append(begin, frame(appendObject(appendString(nil, of), newest, false))...))
	if err == nil {
		h.Blocks, err = l.writeBlocks(ctx, f, s)
	}
	if err == nil {
		_, err = f.WriteAt(h.frame(length), int64(len(copyMagic)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(part(l.o.Copy), l.o.Copy) // without a sync: the checksums detect a power loss
}

// countAt returns how many keys the cluster had below the prefix at a revision.
func (l *Log) countAt(ctx context.Context, at store.Revision) (int64, error) {
	prefix := l.o.Prefix + "/"
	response, err := l.read(ctx, &pb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(rangeEnd(prefix)), Revision: int64(at), CountOnly: true}, quick)
	if err != nil {
		return 0, err
	}
	return response.Count, nil
}

// writeBlocks writes the objects of a state, on all processors.
func (l *Log) writeBlocks(ctx context.Context, f *os.File, s *store.State) (n int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writing sync.Mutex // guards f
	var compressing sync.WaitGroup
	full, empty := make(chan []byte), make(chan []byte, runtime.GOMAXPROCS(0)+1) // one more block is being filled
	for range runtime.GOMAXPROCS(0) {
		empty <- nil
		compressing.Go(func() {
			var compressed []byte
			for block := range full {
				compressed = s2.Encode(compressed[:cap(compressed)], block)
				framed := frame(compressed)
				writing.Lock()
				_, err := f.Write(framed)
				writing.Unlock()
				if err != nil {
					cancel(err)
				}
				empty <- block[:0]
			}
		})
	}
	var block []byte
	of := ""
	for collection, o := range s.All() {
		if ctx.Err() != nil {
			break
		}
		if len(block) >= copyBlock || len(block) > 0 && of != collection {
			full <- block
			block = <-empty
			n++
		}
		if len(block) == 0 {
			of, block = collection, appendString(block, collection)
		}
		outdated, _ := l.outdated.get(collection, o.Key, 0) // no key has changed: there is none
		block = appendObject(block, o, outdated)
	}
	if len(block) > 0 {
		full <- block
		n++
	}
	close(full)
	compressing.Wait()
	return n, context.Cause(ctx)
}

func appendObject(b []byte, o *store.Object, outdated bool) []byte {
	flag := uint64(0)
	if outdated {
		flag = 1
	}
	b = appendString(b, o.Key)
	for _, n := range []uint64{uint64(o.Created), uint64(o.Modified), uint64(o.RevisionAt), flag} {
		b = binary.AppendUvarint(b, n)
	}
	return appendString(b, o.Bytes())
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (h *copyHeader) length() int { return len(h.payload(0)) }

// payload returns the header, with spaces to a length.
func (h *copyHeader) payload(length int) []byte {
	b, err := json.Marshal(h)
	if err != nil { // it has no type that fails
		panic(err)
	}
	return append(b, bytes.Repeat([]byte(" "), max(0, length-len(b)))...)
}

func (h *copyHeader) frame(length int) []byte { return frame(h.payload(length)) }

// frame returns a payload with its length and checksum.
func frame(payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 8+len(payload)), uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}

// loadCopy loads the objects from the copy, and removes it. It reports false, with nothing loaded, if there is no
// copy that can be trusted. An *store.ExpiredError means that the caller may begin again, without the copy.
func (l *Log) loadCopy(ctx context.Context, head store.Revision, load func(string, *store.Object) error) (b store.Bounds, ok bool, err error) {
	if l.o.Copy == "" {
		return b, false, nil
	}
	f, err := os.Open(l.o.Copy)
	if err == nil {
		defer f.Close()
	}
	if removed := RemoveCopy(l.o.Copy); removed != nil {
		err = errors.Join(err, removed)
	}
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			l.log.Warn("the copy of the objects cannot be used", "err", err)
		}
		return b, false, nil
	}
	began := time.Now()
	h, floor, err := l.checkCopy(ctx, f, head)
	if ctx.Err() != nil {
		return b, false, ctx.Err()
	}
	if err != nil {
		l.log.Info("the copy of the objects is not used; all are read from etcd", "reason", err)
		return b, false, nil
	}
	if err := l.readCopy(ctx, f, load); err != nil {
		if ctx.Err() != nil {
			return b, false, ctx.Err()
		}
		l.log.Warn("the copy of the objects could not be read; all are read from etcd", "err", err)
		return b, false, &store.ExpiredError{Revision: head, Floor: head + 1}
	}
	l.log.Info("read the objects from the copy", "objects", h.Objects, "revision", h.Revision, "behind", head-h.Revision, "took", time.Since(began).Round(time.Millisecond))
	return store.Bounds{Head: h.Revision, Floor: floor}, true, nil
}

// checkCopy returns an error if the copy cannot be trusted. It also returns the oldest revision that can be read.
func (l *Log) checkCopy(ctx context.Context, f *os.File, head store.Revision) (h copyHeader, floor store.Revision, err error) {
	r, err := openFrames(f, &h)
	if err != nil {
		return h, 0, err
	}
	switch {
	case h.Program != program() || h.Program == "":
		return h, 0, errors.New("another program wrote it")
	case h.Cluster != l.seen.cluster.Load() || h.Prefix != l.o.Prefix:
		return h, 0, errors.New("it is of another cluster")
	case h.Revision > head:
		return h, 0, fmt.Errorf("it is of revision %d, and the cluster is at %d", h.Revision, head)
	case head-h.Revision > store.Revision(min(leastBehind+h.Objects/behindShare, mostBehind)):
		return h, 0, fmt.Errorf("the cluster is %d revisions ahead", head-h.Revision)
	}
	newest, err := r.next()
	if err != nil {
		return h, 0, err
	}
	newest = bytes.Clone(newest)
	for range h.Blocks {
		if _, err := r.next(); err != nil {
			return h, 0, err
		}
	}
	if _, err := r.next(); err != io.EOF {
		return h, 0, errBadCopy
	}
	if floor, err = l.findFloor(ctx, head); err != nil {
		return h, 0, err
	}
	if floor > h.Revision {
		return h, 0, fmt.Errorf("the history of the cluster begins at revision %d, and the copy is of %d", floor, h.Revision)
	}
	return h, floor, l.claim(ctx, &h, newest)
}

// claim returns an error unless the cluster had the newest object of a copy, and as many keys, at the revision of the
// copy.
func (l *Log) claim(ctx context.Context, h *copyHeader, newest []byte) error {
	keys, err := l.countAt(ctx, h.Revision)
	if err != nil {
		return err
	}
	if keys != h.Keys {
		return fmt.Errorf("at revision %d the cluster had %d keys, and not %d: it was restored from a backup", h.Revision, keys, h.Keys)
	}
	var of, name string
	var o *store.Object
	if err := eachOf(newest, func(collection []byte, c *copied) { of, name, o = string(collection), string(c.key), c.object() }); err != nil || o == nil {
		return errBadCopy
	}
	key, err := l.etcdKey(of, name)
	if err != nil {
		return err
	}
	response, err := l.read(ctx, &pb.RangeRequest{Key: []byte(key), Revision: int64(h.Revision)}, quick)
	if err != nil {
		return err
	}
	if len(response.Kvs) == 1 {
		there, err := l.decode(ctx, versionOf(of, name, response.Kvs[0]))
		if err != nil {
			return err
		}
		if there.Modified == o.Modified && there.Created == o.Created && bytes.Equal(there.Held, o.Held) {
			return nil
		}
	}
	return fmt.Errorf("at revision %d the cluster had another %s %s: it was restored from a backup", h.Revision, of, name)
}

// readCopy loads the objects of a copy that was checked, on all processors.
func (l *Log) readCopy(ctx context.Context, f *os.File, load func(string, *store.Object) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var h copyHeader
	r, err := openFrames(f, &h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if _, err := r.next(); err != nil { // the newest object, which is in its block, too
		return err
	}
	var objects atomic.Int64
	payloads := make(chan []byte, runtime.GOMAXPROCS(0))
	var decoding sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		decoding.Go(func() {
			var block []byte
			for payload := range payloads {
				var err error
				if block, err = decompress(block, payload); err == nil {
					err = l.loadBlock(block, func(collection string, o *store.Object) error {
						objects.Add(1)
						return load(collection, o)
					})
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	for range h.Blocks {
		payload, err := r.next()
		if err != nil {
			cancel(err)
		}
		if ctx.Err() != nil {
			break
		}
		payloads <- bytes.Clone(payload)
	}
	close(payloads)
	decoding.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if n := objects.Load(); n != int64(h.Objects) {
		return fmt.Errorf("%w: there are %d objects of %d", errBadCopy, n, h.Objects)
	}
	return l.loadFences(ctx)
}

// loadFences takes the revisions of the fences, which the copy lacks.
func (l *Log) loadFences(ctx context.Context) error {
	prefix := l.fencePrefix()
	response, err := l.read(ctx, &pb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(rangeEnd(prefix))}, quick)
	if err != nil {
		return err
	}
	for _, kv := range response.Kvs {
		l.loadFence(kv)
	}
	return nil
}

// loadBlock loads the objects of a block.
func (l *Log) loadBlock(block []byte, load func(string, *store.Object) error) error {
	var name string
	var failed error
	err := eachOf(block, func(collection []byte, c *copied) {
		if name == "" {
			name = string(collection)
		}
		o := c.object()
		if c.outdated {
			l.outdated.set(name, o.Key, true, 0)
		}
		if err := load(name, o); err != nil {
			failed = err
		}
	})
	return errors.Join(err, failed)
}

// errBadCopy: the file is damaged.
var errBadCopy = errors.New("the file is damaged")

// frames reads frames.
type frames struct {
	r       *bufio.Reader
	payload []byte
}

// openFrames reads the beginning of a copy.
func openFrames(f *os.File, h *copyHeader) (*frames, error) {
	r := &frames{r: bufio.NewReaderSize(f, 1<<20)}
	magic := make([]byte, len(copyMagic))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != copyMagic {
		return nil, fmt.Errorf("%w, or has another format", errBadCopy)
	}
	payload, err := r.next()
	if err == nil {
		err = json.Unmarshal(payload, h)
	}
	if err != nil || h.Blocks < 0 || h.Objects < 0 {
		return nil, fmt.Errorf("%w: %w", errBadCopy, errors.Join(err, errors.New("the header")))
	}
	return r, nil
}

// next returns the next payload, which is valid until the next call; io.EOF: there is none.
func (r *frames) next() ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r.r, head[:]); err == io.EOF {
		return nil, io.EOF
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadCopy, err)
	}
	size, sum := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	if size > mostCopyBlock {
		return nil, errBadCopy
	}
	if cap(r.payload) < int(size) {
		r.payload = make([]byte, size)
	}
	r.payload = r.payload[:size]
	if _, err := io.ReadFull(r.r, r.payload); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadCopy, err)
	}
	if crc32.Checksum(r.payload, castagnoli) != sum {
		return nil, errBadCopy
	}
	return r.payload, nil
}

// copied is an object of a block. Its bytes are those of the block.
type copied struct {
	key, value        []byte
	created, modified store.Revision
	revisionAt        int32
	outdated          bool
}

func (c *copied) object() *store.Object {
	return &store.Object{Key: string(c.key), Held: bytes.Clone(c.value), Created: c.created, Modified: c.modified, RevisionAt: c.revisionAt}
}

// decompress returns the block of a payload. It uses the buffer if the block fits into it.
func decompress(buffer, payload []byte) ([]byte, error) {
	if n, err := s2.DecodedLen(payload); err != nil || n > mostCopyBlock {
		return nil, errBadCopy
	}
	block, err := s2.Decode(buffer[:cap(buffer)], payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadCopy, err)
	}
	return block, nil
}

// eachOf calls a function for each object of a block.
func eachOf(block []byte, f func(collection []byte, c *copied)) error {
	collection, rest, ok := cutString(block)
	if !ok {
		return errBadCopy
	}
	for len(rest) > 0 {
		var c copied
		if c.key, rest, ok = cutString(rest); !ok {
			return errBadCopy
		}
		var n [4]uint64
		for i := range n {
			if n[i], rest, ok = cutNumber(rest); !ok {
				return errBadCopy
			}
		}
		if c.value, rest, ok = cutString(rest); !ok || n[2] > uint64(len(c.value)) {
			return errBadCopy
		}
		c.created, c.modified, c.revisionAt, c.outdated = store.Revision(n[0]), store.Revision(n[1]), int32(n[2]), n[3] == 1
		f(collection, &c)
	}
	return nil
}

func cutNumber(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}

func cutString(b []byte) (s, rest []byte, ok bool) {
	n, b, ok := cutNumber(b)
	if !ok || n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
