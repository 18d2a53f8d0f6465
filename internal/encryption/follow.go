package encryption

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

const (
	// pollFile is how often a followed file is read.
	pollFile = time.Second
	// retryFile is the pause before a refused file that has not changed is tried again: a KMS
	// plugin may be well later.
	retryFile = 10 * time.Second
	// awaitStart bounds how long a start waits for KMS plugins.
	awaitStart = 30 * time.Second
	pollStart  = time.Second
)

// Reloads counts the reloads of a file.
type Reloads struct {
	Succeeded, Failed        int64
	LastSuccess, LastFailure time.Time // zero: none
}

// follower reads a configuration file again when it changes.
type follower struct {
	c      Config
	active *Active
	stop   context.CancelFunc
	done   chan struct{}

	succeeded, failed        atomic.Int64
	lastSuccess, lastFailure atomic.Int64 // Unix nanoseconds
}

// Follow begins to read the file of the configuration when it changes, until Close. A file that is
// refused changes nothing; it is tried again. It is called once at most.
func (a *Active) Follow(c Config) {
	ctx, stop := context.WithCancel(context.Background())
	a.follower = &follower{c: c.withDefaults(), active: a, stop: stop, done: make(chan struct{})}
	go a.follower.run(ctx)
}

// Unfollow ends Follow, and waits until it has ended. It is idempotent.
func (a *Active) Unfollow() {
	if a.follower != nil {
		a.follower.stop()
		<-a.follower.done
	}
}

// Reloads returns the counts of Follow.
func (a *Active) Reloads() Reloads {
	f := a.follower
	if f == nil {
		return Reloads{}
	}
	r := Reloads{Succeeded: f.succeeded.Load(), Failed: f.failed.Load()}
	if n := f.lastSuccess.Load(); n != 0 {
		r.LastSuccess = time.Unix(0, n)
	}
	if n := f.lastFailure.Load(); n != 0 {
		r.LastFailure = time.Unix(0, n)
	}
	return r
}

func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	var refused struct { // the file that was refused last
		hash  string
		again time.Time
	}
	for {
		timer := time.NewTimer(pollFile)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		data, err := readConfig(f.c.Path)
		hash := ""
		if err == nil {
			hash = hashOf(data)
		}
		same := !refused.again.IsZero() && hash == refused.hash
		if same && time.Now().Before(refused.again) {
			continue
		}
		changed := false
		if err == nil {
			changed, err = f.reload(ctx, data)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.failed.Add(1)
			f.lastFailure.Store(f.c.Now().UnixNano())
			if !same {
				f.c.Log.Error("encryption: the changed configuration was refused, and the one before stays in effect", "file", f.c.Path, "err", err)
			}
			refused.hash, refused.again = hash, time.Now().Add(retryFile)
			continue
		case changed:
			f.succeeded.Add(1)
			f.lastSuccess.Store(f.c.Now().UnixNano())
			f.c.Log.Info("encryption: the changed configuration is in effect", "file", f.c.Path, "hash", hash)
		}
		refused.again = time.Time{}
	}
}

// reload makes data the configuration in effect, if it is another one.
func (f *follower) reload(ctx context.Context, data []byte) (changed bool, err error) {
	old := f.active.set.Load()
	if hashOf(data) == old.hash {
		return false, nil
	}
	s, err := newSet(f.c, data)
	if err != nil {
		return false, err
	}
	if err := f.take(ctx, s); err != nil {
		s.Close()
		return false, err
	}
	old.Close()
	return true, nil
}

func (f *follower) take(ctx context.Context, s *Set) error {
	for _, k := range s.kms {
		select {
		case <-k.first:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := s.Health(); err != nil {
		return err
	}
	return f.active.exchange(ctx, s)
}

// Await waits until the KMS plugins are healthy, for at most 30 seconds. Calls of unhealthy plugins
// then fail.
func (s *Set) Await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, awaitStart)
	defer cancel()
	for _, k := range s.kms {
		select {
		case <-k.first:
		case <-ctx.Done():
			return
		}
		for k.err() != nil {
			select {
			case <-time.After(pollStart):
				_ = k.check(ctx)
			case <-ctx.Done():
				return
			}
		}
	}
}

// Health returns why a KMS plugin is unhealthy by its last status, or nil.
func (s *Set) Health() error {
	var errs []error
	for i, k := range s.kms {
		if err := k.err(); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	return utilerrors.Reduce(utilerrors.NewAggregate(errs))
}
