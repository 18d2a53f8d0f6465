package encryption

import (
	"bytes"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Values that cannot be read at a start
//
// A value that cannot be decrypted must not prevent the server from serving the others. But a start without the key of all
// Secrets must fail, so that an operator can repair the configuration before clients notice. So a value is replaced by a
// stand-in of the store if its provider and key are configured, which is known if
//
//   - another value with the same provider and key can be decrypted, or
//   - its KMS plugin is healthy and has refused to decrypt the value.
//
// Otherwise the start fails, unless the operator requests stand-ins for all values.

// StandIns selects the values that a replay replaces by stand-ins if they cannot be decrypted.
type StandIns uint8

const (
	// NoStandIns replaces none: a value that cannot be decrypted is an error.
	NoStandIns StandIns = iota
	// SomeStandIns replaces values whose provider and key are configured. Others are an error.
	SomeStandIns
	// AllStandIns replaces all values that cannot be decrypted.
	AllStandIns
)

// replayed has the results of a replay about the values. It is safe for concurrent use.
type replayed struct {
	bad unreadable

	mu   sync.RWMutex
	good map[string]struct{} // providers and keys, as prefixes of values that were decrypted; guarded by mu
	// missing are the providers and keys of values that were not, with an example; guarded by mu.
	missing map[string]*store.Object
	rules   map[string]*rule // of the examples
	passing bool             // a value may be decrypted later
}

// opened records that a value was decrypted.
func (r *replayed) opened(o *store.Object) {
	prefix := prefixOfValue(o.Held)
	r.mu.RLock()
	_, known := r.good[string(prefix)]
	r.mu.RUnlock()
	if known {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.good == nil {
		r.good = map[string]struct{}{}
	}
	r.good[string(prefix)] = struct{}{}
}

// failed records that a value was not decrypted.
func (r *replayed) failed(o *store.Object, by *rule, err error) {
	r.bad.add(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing == nil {
		r.missing, r.rules = map[string]*store.Object{}, map[string]*rule{}
	}
	prefix := string(prefixOfValue(o.Held))
	r.missing[prefix], r.rules[prefix] = o, by
	if passing(err) {
		r.passing = true
	}
}

// passing reports whether a plugin that returned an error may decrypt the value later, because the plugin was not reached.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted:
		return true
	}
	return false
}

// lacksKey reports whether values could not be decrypted because the configuration may lack their provider or key.
func (r *replayed) lacksKey() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.passing {
		return true // the plugin was not reached, so this is not known
	}
	for prefix, o := range r.missing {
		_, good := r.good[prefix]
		if !good && !r.rules[prefix].hasPlugin(o.Held, func(_ *way, k *kms) bool { return k.err() == nil }) {
			return true
		}
	}
	return false
}

// prefixOfValue returns the part of an encrypted value that names its provider and key. Those of plain values are empty.
func prefixOfValue(held []byte) []byte {
	if !isEncrypted(held) {
		return nil
	}
	at := len(encryptedPrefix)
	for range 3 {
		next := bytes.IndexByte(held[at:], ':')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return held[:at]
}

// standIn returns the stand-in of a version that could not be decrypted when the log was replayed, nil for other versions.
func (l *Log) standIn(collection string, o *store.Object, why error) *store.Object {
	if at, known := l.standIns.Load(place{collection, o.Key}); !known || at != o.Modified {
		return nil
	}
	return store.NewUnreadable(o.Key, o.Created, o.Modified, why.Error())
}

// stored replaces a stand-in in e.Before by the stored version, which the log expects.
func (l *Log) stored(e *store.Entry) error {
	if e.Before.Unreadable() == "" {
		return nil
	}
	before, err := l.Log.Current(e.Collection, e.Key)
	if err == nil && before != nil {
		e.Before = before
	}
	return err
}
