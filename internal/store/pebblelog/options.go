package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Options configure a log. The zero value works, but for Dir.
type Options struct {
	// Dir is the directory of the log, used by nothing else. It is made if absent. The
	// caller ensures that its parent directory survives a power cut.
	Dir string

	// FS is the file system; nil means the machine's. Its GetDiskUsage returns the free
	// space.
	FS vfs.FS

	// MinFreeBytes is the watermark: with less free space on the file system, Append
	// accepts only deletions. Zero means an eighth of the file system, at most
	// DefaultMinFreeBytes.
	MinFreeBytes uint64
	// ReserveBytes is the size of the reserve file, which is removed for deletions when less
	// than half of the watermark is free. Zero means a sixth of the default of MinFreeBytes,
	// at most DefaultReserveBytes.
	ReserveBytes uint64

	// HeadInterval bounds how long after a write the file HEAD is updated. The next start
	// detects the loss of any older write. Zero means DefaultHeadInterval.
	HeadInterval time.Duration
	// AcceptDataLoss opens a log that lost writes without them, if the rest is consistent.
	// The lost writes are logged as warnings.
	AcceptDataLoss bool

	// ReadOnly opens a log that exists, and changes no file of it. Append and Compact return errors.
	// AcceptDataLoss and Upgrade do not count.
	ReadOnly bool

	// Upgrade is called when an existing log has passed the checks of Open, before anything of
	// format 2 is written. Its error ends Open. Nil: nothing is to be done.
	Upgrade func() error

	// Held returns an error if Dir is no longer the directory that was opened. The log calls it before it writes, and fails
	// with its error. Nil: the directory stays.
	Held func() error

	// Logger gets Pebble's messages, most of them at debug level. Nil discards them.
	Logger *slog.Logger

	// reach is actorReach but for tests.
	reach store.Revision
}

const (
	// DefaultMinFreeBytes covers the background writes of Pebble after the
	// last group was accepted: memtables, the outputs of a compaction, a new WAL.
	DefaultMinFreeBytes = 96 << 20
	// DefaultReserveBytes is some thousand deletions.
	DefaultReserveBytes = 16 << 20
	// leastMinFree is the watermark of the smallest file systems: the memtables and write-ahead logs of the last
	// writes, and the space for the compaction that follows deletions.
	leastMinFree = 8 << 20
	// DefaultHeadInterval costs a sync of a small file each second while there are
	// writes, which no write waits for.
	DefaultHeadInterval = time.Second
)

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.ReadOnly {
		o.AcceptDataLoss, o.Upgrade = false, nil
	}
	if o.HeadInterval == 0 {
		o.HeadInterval = DefaultHeadInterval
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.reach == 0 {
		o.reach = actorReach
	}
	return o
}

// Limits of Pebble. docs/decisions/0002-log-layout.md has the measurements.
const (
	memTableBytes  = 8 << 20
	leastMemTable  = 1 << 20
	tableBytes     = 8 << 20
	blockBytes     = 16 << 10
	slowDisk       = 5 * time.Second
	maxOpenFiles   = 500
	maxCompactions = 2
	manifestBytes  = 4 << 20
	// Compactions wait for twice as much as by default, and the level that they
	// write to may be four times as large: an update of a pod costs 463 us instead of
	// 562, and the disk 12 % more.
	compactAtL0 = 8
	baseBytes   = 256 << 20
	// stopWritesAtL0 is never reached: if the disk is too full to compact, a write that waits
	// for a compaction would wait for ever, and so would the deletions that make room.
	stopWritesAtL0  = 1 << 20
	stopWritesAtMem = 4
)

// pebbleOptions returns the options for Pebble, and sets l.blocks. The returned function frees the cache and stops the
// monitoring of the file system; call it after closing Pebble.
func (l *Log) pebbleOptions(mustExist bool) (*pebble.Options, func() error) {
	l.blocks = newBlockCache()
	events := l.events()
	fs, watcher := vfs.WithDiskHealthChecks(orderedFS{l.o.FS, l.pebbleDir(), &l.space, &l.wals}, slowDisk, nil, events.DiskSlow)
	o := &pebble.Options{
		FS:                          fs,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		ErrorIfNotExists:            mustExist,
		ReadOnly:                    l.o.ReadOnly,
		Logger:                      pebbleLogger{l},
		EventListener:               events,
		MemTableSize:                l.memTable,
		MemTableStopWritesThreshold: stopWritesAtMem,
		Cache:                       l.blocks.Cache,
		MaxOpenFiles:                maxOpenFiles,
		MaxManifestFileSize:         manifestBytes,
		L0CompactionThreshold:       compactAtL0,
		L0StopWritesThreshold:       stopWritesAtL0,
		LBaseMaxBytes:               baseBytes,
		CompactionConcurrencyRange:  func() (int, int) { return 1, maxCompactions },
	}
	o.Experimental.FileCacheShards = min(runtime.GOMAXPROCS(0), 4)
	o.Experimental.ReadSamplingMultiplier = -1 // reads start no compactions
	for i := range o.Levels {
		o.TargetFileSizes[i] = tableBytes
		o.Levels[i].BlockSize = blockBytes
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return compression })
	return o, func() error {
		l.blocks.close()
		return watcher.Close()
	}
}

// compression: see docs/decisions/0002-log-layout.md.
var compression = pebble.DBCompressionFastest

// events are the events of Pebble that the log uses.
func (l *Log) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: l.background,
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			l.o.Logger.Error("log: damaged file", "path", i.Path, "error", firstLine(i.Details))
		},
		DiskSlow: func(i pebble.DiskSlowInfo) {
			l.o.Logger.Warn("log: the disk is slow", "path", i.Path, "operation", i.OpType.String(), "duration", i.Duration)
		},
		FlushEnd: func(i pebble.FlushInfo) {
			l.space.full.Store(errors.Is(i.Err, syscall.ENOSPC))
			if i.Err == nil {
				l.copyHeadSoon()
			}
		},
		CompactionEnd: func(i pebble.CompactionInfo) {
			if i.Err == nil {
				l.space.cramped.Store(false)
			}
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { l.o.Logger.Debug("log: writes wait", "reason", i.Reason) },
	}
}

// background handles an error of a flush or of a compaction. Such a job writes new files from
// data that is durable elsewhere, so a full disk does no harm: Pebble retries. After any
// other error, written data may be lost, and the log fails.
func (l *Log) background(err error) {
	if retryable(err) {
		if !l.space.cramped.Swap(true) {
			l.o.Logger.Warn("log: no space, or no file, for a flush or a compaction, which is tried again", "error", firstLine(err))
		}
		return
	}
	if pebble.IsCorruptionError(err) {
		l.failure.set(l.blame("a table", err))
	} else {
		l.failure.set(fmt.Errorf("log %s: in the background: %w", l.o.Dir, err))
	}
	runtime.Goexit() // or Pebble would try again, and again
}

// retryable reports whether a flush or a compaction that ended with the error may be tried
// again: the machine lacked something that may come back.
func retryable(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// pebbleLogger passes Pebble's messages to slog.
type pebbleLogger struct{ l *Log }

func (p pebbleLogger) Infof(format string, args ...any) {
	if p.l.o.Logger.Enabled(context.Background(), slog.LevelDebug) {
		p.l.o.Logger.Debug("pebble: " + fmt.Sprintf(format, args...))
	}
}

func (p pebbleLogger) Errorf(format string, args ...any) {
	p.l.o.Logger.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf is called when Pebble cannot go on; Pebble expects it not to return. The log fails
// and the goroutine ends; its waiters see the failure. (A library does not end the
// process: that is the caller's decision.)
func (p pebbleLogger) Fatalf(format string, args ...any) {
	p.l.failure.set(fmt.Errorf("log %s: %s", p.l.o.Dir, fmt.Sprintf(format, args...)))
	runtime.Goexit()
}

// failure is the first error after which the log is unusable.
type failure struct {
	once sync.Once
	done chan struct{} // closed by set
	err  error         // written before done is closed
}

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// get returns the failure, or nil.
func (f *failure) get() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}
