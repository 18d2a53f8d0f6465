package encryption

import (
	"bytes"
	"context"
	"sync/atomic"
)

// EncryptValue returns the stored form of a value of a collection. The place is the key of the value
// in etcd, "/registry/secrets/NAMESPACE/NAME": methods that authenticate bind the value to it. The
// error says why the first provider cannot encrypt at present. Without a rule for the collection,
// EncryptValue returns the value itself.
func (s *Set) EncryptValue(collection string, value, place []byte) ([]byte, error) {
	r := s.rule(collection)
	if r == nil {
		return value, nil
	}
	if err := r.ready(); err != nil {
		return nil, err
	}
	return r.encrypt(value, place)
}

// OpenValue decrypts a value that EncryptValue, or kube-apiserver, stored at a place. Outdated reports
// whether EncryptValue would encrypt the value in another way. The error is an *OpenError. The result
// may share memory with the argument.
func (s *Set) OpenValue(ctx context.Context, collection string, encrypted, place []byte) (value []byte, outdated bool, err error) {
	r := s.rule(collection)
	if r == nil {
		value, err = identity{}.open(ctx, encrypted, place)
	} else {
		var at int
		value, at, err = r.open(ctx, encrypted, place)
		outdated = err == nil && (at != 0 || !r.ways[at].method.current(encrypted[len(r.ways[at].prefix):]))
	}
	if err != nil {
		return nil, false, &OpenError{Path: string(place), With: describe(encrypted), Again: r.mayRecover(encrypted), Err: err}
	}
	return value, outdated, nil
}

// mayRecover reports whether the plugin of a value that it did not decrypt may do so within seconds.
func (r *rule) mayRecover(encrypted []byte) bool {
	return r.hasPlugin(encrypted, func(_ *way, k *kms) bool { return k.mayRecover() })
}

// hasPlugin reports whether a rule has the KMS plugin of a value, for which a condition holds. The rule may be nil.
func (r *rule) hasPlugin(encrypted []byte, condition func(*way, *kms) bool) bool {
	if r == nil {
		return false
	}
	for i := range r.ways {
		w := &r.ways[i]
		if k, remote := w.method.(*kms); remote && bytes.HasPrefix(encrypted, []byte(w.prefix)) && condition(w, k) {
			return true
		}
	}
	return false
}

// generations counts the changes of keys in this process.
var generations atomic.Uint64

// generation is the number of the last change of the key of a collection by its KMS plugin; zero: there
// was none.
func (s *Set) generation(collection string) uint64 {
	r := s.rule(collection)
	if r == nil {
		return 0
	}
	if k, remote := r.ways[0].method.(*kms); remote {
		return k.generation.Load()
	}
	return 0
}
