// Package etcdstore keeps the objects of servers in etcd v3, with the keys and values of
// kube-apiserver. Several servers can share them.
//
// Only programs that import the package link the client of etcd.
package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/dirlock"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/privatedir"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
)

// Cluster is an etcd cluster. Fill in Servers, and use it as the Storage of a tidemark.Server. The
// fields are those of kube-apiserver's flags --etcd-*. They are not changed after the first call.
type Cluster struct {
	// Servers are the client URLs of the members: http://host:port, or https://host:port for TLS.
	Servers []string
	// Prefix is the prefix of all keys; empty: /registry.
	Prefix string
	// CAFile verifies the members; empty: the roots of the system. CertFile and KeyFile are the
	// certificate of the client and its key; empty: it has none.
	CAFile, CertFile, KeyFile string

	// CompactionInterval is the pause between compactions: history that is older is deleted. Zero: 5
	// minutes. Negative: the server compacts nothing.
	CompactionInterval time.Duration
	// UsageInterval is the pause between polls of the size of the database; zero: 30 seconds.
	UsageInterval time.Duration
	// LeaseReuse is how long a lease is given to new events; zero: a minute.
	LeaseReuse time.Duration
	// EventTTL is how long events stay after their last write; zero: an hour.
	EventTTL time.Duration

	// HealthTimeout and ReadyTimeout are how long the health checks etcd and etcd-readiness wait for
	// etcd. Each asks etcd once in that time at most. Zero: 2 seconds.
	HealthTimeout, ReadyTimeout time.Duration

	// Path is a directory for the other files of the server, such as its certificate authority. It
	// is created with mode 0700 if it does not exist, and locked: each server needs its own. Empty:
	// they are not kept.
	Path string
	// GroupAccess accepts a Path that its group can enter, and one of another owner, as a volume with an fsGroup is.
	// Otherwise only a directory of this user with mode 0700 is accepted.
	GroupAccess bool

	// Logger gets messages about connections and compactions; nil: they are discarded.
	Logger *slog.Logger
}

// The collections whose objects end by themselves: events, and the addresses of servers.
const (
	eventCollection   = "events"
	addressCollection = "masterleases"
)

// allocatorCollection has the bitmaps in which kube-apiserver allocates node ports and addresses.
const allocatorCollection = "ranges"

// copyFile has the objects in Path, while no server runs.
const copyFile = "objects.copy"

// Check returns an error if no log can be opened with the fields. It opens files, and no connection.
func (c *Cluster) Check() error {
	o := c.options(c.codec(nil))
	return o.Check()
}

func (c *Cluster) options(codec *etcdvalue.Codec) etcdlog.Options {
	return etcdlog.Options{
		Servers: c.Servers, Prefix: strings.TrimSuffix(codec.Keys.Root(), "/"),
		CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Codec: translate(codec), TTL: c.ttl, LeaseReuse: c.LeaseReuse,
		CompactionInterval: c.CompactionInterval, UsageInterval: c.UsageInterval, Logger: c.Logger,
	}
}

func (c *Cluster) ttl(collection string) time.Duration {
	switch collection {
	case eventCollection:
		return cmp.Or(c.EventTTL, time.Hour)
	case addressCollection:
		return 15 * time.Second // as in kube-apiserver
	}
	return 0
}

// translate returns the functions that the log needs of a codec.
func translate(c *etcdvalue.Codec) etcdlog.Codec {
	return etcdlog.Codec{
		Prefix: func(collection string) (string, error) { return c.Keys.Prefix(collection), nil },
		Place: func(etcdKey string) (collection, key string, ok bool) {
			p := c.Keys.Find(etcdKey)
			return p.Collection, p.Key, p.Class == etcdvalue.Object
		},
		Encode: c.Encrypt,
		Decode: func(ctx context.Context, collection, key string, value []byte) (etcdlog.Decoded, error) {
			d, err := open(ctx, c, collection, key, value)
			return etcdlog.Decoded{Value: d.JSON, RevisionAt: d.RevisionAt, Outdated: d.Outdated}, err
		},
		Generation: c.Generation,
	}
}

// kmsPause is the pause before a value that a KMS plugin failed to decrypt is tried again.
const kmsPause = 250 * time.Millisecond

// open reads a value. While a KMS plugin restarts, it waits.
func open(ctx context.Context, c *etcdvalue.Codec, collection, key string, value []byte) (etcdvalue.Decoded, error) {
	for {
		d, err := c.Open(ctx, collection, key, value)
		var encrypted *encryption.OpenError
		if !errors.As(err, &encrypted) || !encrypted.Again {
			return d, err
		}
		select {
		case <-time.After(kmsPause):
		case <-ctx.Done():
			return d, err
		}
	}
}

// Open opens the log, which owns the encryption. It waits for no connection. A tidemark.Server calls it.
func (c *Cluster) Open(_ context.Context, with storage.Options) (*storage.Opened, error) {
	e := with.Encryption
	o := &opened{codec: c.codec(e), encryption: e}
	if c.Path != "" {
		err := c.prepare()
		if err == nil {
			o.lock, err = dirlock.Take(filepath.Join(c.Path, dirlock.File))
		}
		if err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	options := c.options(o.codec)
	switch file := filepath.Join(c.Path, copyFile); {
	case c.Path == "", runtime.GOOS == "windows": // there an open file cannot be removed
	case e.Empty():
		options.Copy = file
	default: // the file would have values in plain text that are encrypted in etcd
		if err := etcdlog.RemoveCopy(file); err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	l, err := etcdlog.Open(options)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	o.Log = l
	e.ReadFrom(o.values)
	const usual = 2 * time.Second
	return &storage.Opened{
		Shared: o, Encryption: l, Dir: c.Path, Keep: l.Keep, Members: l.Members,
		HealthTimeout: cmp.Or(c.HealthTimeout, usual), ReadyTimeout: cmp.Or(c.ReadyTimeout, usual),
	}, nil
}

// prepare creates the directory of the server or checks the existing one.
func (c *Cluster) prepare() error {
	private := privatedir.Dir{Path: c.Path, GroupAccess: c.GroupAccess}
	info, err := private.Stat()
	if errors.Is(err, fs.ErrNotExist) {
		return atomicfile.MakeDir(c.Path)
	}
	if err != nil {
		return err
	}
	files, err := os.ReadDir(c.Path)
	if err != nil {
		return err
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(files, func(f fs.DirEntry) bool { return slices.Contains(names, f.Name()) })
	}
	empty := !slices.ContainsFunc(files, func(f fs.DirEntry) bool { return f.Name() != dirlock.File && f.Name() != "lost+found" })
	switch {
	case has("FORMAT"):
		return fmt.Errorf("data directory %s: it has objects, which a server with --etcd-servers would not show: choose another directory", c.Path)
	case !empty && !has("pki", copyFile): // the certificates may have been copied from another server
		return fmt.Errorf("data directory %s: it holds other files and no certificates of a server: choose an empty or a new directory", c.Path)
	}
	return private.Secure(info, empty)
}

// opened is a log with the encryption of its values, and the lock of the server's directory.
type opened struct {
	*etcdlog.Log // nil: it was not opened
	codec        *etcdvalue.Codec
	encryption   *encryption.Active
	lock         *dirlock.Lock // nil: there is no directory, or another server has the lock
}

// values yields the stored values of collections, nil: of all of them. Each page is of the newest revision.
func (o *opened) values(ctx context.Context, collections []string) iter.Seq2[encryption.Value, error] {
	keys := &o.codec.Keys
	prefixes := []string{keys.Root()}
	if collections != nil {
		prefixes = nil
		for _, c := range collections {
			prefixes = append(prefixes, keys.Prefix(c))
		}
	}
	return func(yield func(encryption.Value, error) bool) {
		for _, prefix := range prefixes {
			for kvs, err := range o.Log.Keys(ctx, prefix, 0) {
				if err != nil {
					yield(encryption.Value{}, err)
					return
				}
				for _, kv := range kvs {
					p := keys.Find(string(kv.Key))
					if p.Class == etcdvalue.Object && !yield(encryption.Value{Collection: p.Collection, Place: kv.Key, Stored: kv.Value}, nil) {
						return
					}
				}
			}
		}
	}
}

// Close closes the log, then the encryption, and releases the lock.
func (o *opened) Close() (err error) {
	o.encryption.Unfollow()
	if o.Log != nil {
		err = o.Log.Close()
	}
	o.encryption.Close()
	if o.lock != nil {
		err = errors.Join(err, o.lock.Close())
	}
	return err
}
