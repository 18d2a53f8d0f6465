package world

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/upgraded"
)

// packed are the collections whose large objects the stores hold compressed.
var packed = map[string]bool{crd.Collection: true}

// openStore opens the storage, and the store of the root world on its log.
func (p *process) openStore(ctx context.Context) (*store.Store, error) {
	set, err := p.encryption(ctx)
	if err != nil {
		return nil, err
	}
	p.encrypted = encryption.NewActive(set)
	if err := p.openStorage(ctx); err != nil {
		p.encrypted.Close()
		return nil, err
	}
	o := store.Options{
		Now:       p.Now,
		Retention: p.History.Retention,
		MaxMemory: p.Memory.MaxHistoryBytes,
		Note:      p.note,
		OnFatal:   p.Failure.Fail,
		Packed:    packed,
	}
	var unread func() error
	if p.storage.Shared != nil {
		if !p.follows() {
			p.identity = newIdentity()
		}
		o.Shared, o.Encryption = p.storage.Shared, p.storage.Encryption
		if p.follows() {
			unread = p.storage.Followed.Unread
		}
	} else {
		encrypted := p.encryptedLog()
		o.Log, o.Encryption, o.MaxDisk, unread = upgraded.Wrap(encrypted), encrypted, p.History.MaxDiskBytes, encrypted.Unread
	}
	if p.past() || p.ReadOnly { // nothing is compacted
		o.Retention, o.MaxDisk = math.MaxInt64, math.MaxInt64
	}
	objects, err := stores.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if unread != nil && unread() != nil {
		p.note(true, "requests for some objects fail", "err", unread())
	}
	if p.past() {
		p.storage = storage.Opened{}
		return p.stateAt(ctx, objects)
	}
	if p.ReadOnly {
		p.storage = storage.Opened{}
	}
	if p.Encryption.AutomaticReload {
		p.encrypted.Follow(p.encryptionConfig())
	}
	return objects, nil
}

// encryptedLog returns the log of this server alone, with encryption.
func (p *process) encryptedLog() *encryption.Log {
	log := p.storage.Log
	if log == nil {
		log = &memlog.Log{Start: p.firstRevision()}
	}
	encrypted := encryption.Wrap(log, p.encrypted)
	encrypted.StandIns = p.standIns()
	return encrypted
}

// openStorage opens the storage, if there is one.
func (p *process) openStorage(ctx context.Context) error {
	if p.Storage == nil {
		return nil
	}
	opened, err := p.Storage.Open(ctx, storage.Options{Encryption: p.encrypted, StandIns: p.standIns()})
	if err != nil {
		return err
	}
	p.storage = *opened
	if err := p.checkStorage(opened); err != nil {
		if opened.Shared != nil {
			return errors.Join(err, opened.Shared.Close())
		}
		return errors.Join(err, opened.Log.Close())
	}
	return nil
}

// checkStorage checks that a storage supports the configuration.
func (p *process) checkStorage(o *storage.Opened) error {
	switch {
	case p.ReadOnly && o.Shared != nil:
		return errors.New("a server that only reads needs a data directory")
	case p.past() && o.Shared != nil:
		return errors.New("a resource version to begin with needs a Storage that has its state: a data directory")
	case p.Backups.Schedule == nil || o.Backups != nil || o.Followed != nil:
		return nil
	case o.Shared != nil:
		return errors.New("backups on a schedule are those of a data directory: the objects are in etcd, which makes its own, as with etcdctl snapshot save")
	}
	return errors.New("backups on a schedule are those of a data directory, and the storage is none")
}

// past reports whether the server begins with a historical state.
func (p *process) past() bool { return p.At != 0 || !p.AtTime.IsZero() || p.Play > 0 }

// findState sets At.
func (p *process) findState(ctx context.Context, stored *store.Store) error {
	floor, head := stored.Bounds()
	switch {
	case !p.AtTime.IsZero():
		r, err := stored.RevisionAt(ctx, p.AtTime)
		if err != nil {
			return fmt.Errorf("the state of %s is not stored; the history begins with resource version %d: %w", p.AtTime.Format(time.RFC3339), floor, err)
		}
		p.At = uint64(r)
	case p.At == 0:
		p.At = uint64(min(max(floor, 1), head))
	}
	return nil
}

// stateAt returns a store in memory that begins with the state of another one at the resource version At. It
// closes the other one, unless its changes are played.
func (p *process) stateAt(ctx context.Context, stored *store.Store) (*store.Store, error) {
	if err := p.findState(ctx, stored); err != nil {
		return nil, errors.Join(err, stored.Close())
	}
	floor, head := stored.Bounds()
	state, err := stored.StateAt(ctx, store.Revision(p.At), nil)
	if err != nil {
		err = fmt.Errorf("the state at resource version %d is not stored; the history has those from %d to %d: %w", p.At, floor, head, err)
		return nil, errors.Join(err, stored.Close())
	}
	then, err := stores.Fork(stored, state, store.Options{
		Log: memlog.From(state), Retention: p.History.Retention, MaxMemory: p.Memory.MaxHistoryBytes, Packed: packed, Now: p.Now,
		Note: p.note, OnFatal: p.Failure.Fail,
	})
	if err == nil && p.Play > 0 {
		begin := p.AtTime
		if begin.IsZero() {
			begin = state.Time()
		}
		p.player = &player{from: stored, to: then, speed: p.Play, begin: begin, log: p.logOf(logStore)}
		return then, nil
	}
	return then, errors.Join(err, stored.Close())
}
