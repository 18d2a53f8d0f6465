package storetest

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Write returns a write of a Pod on a condition, see store.Write.If.
func Write(key string, condition store.Revision) store.Write {
	return store.Write{Collection: "pods", Key: key, Value: []byte(`{"rv":""}`), RevisionAt: 7, If: condition}
}

// Padded is Write of a value that has so many bytes more.
func Padded(key string, condition store.Revision, size int) store.Write {
	w := Write(key, condition)
	w.Value = append(w.Value, bytes.Repeat([]byte(" "), size)...)
	return w
}

// Remove returns a deletion of a Pod on a condition.
func Remove(key string, condition store.Revision) store.Write {
	return store.Write{Collection: "pods", Key: key, If: condition}
}

// MustCommit commits a write. An error ends the test.
func MustCommit(t testing.TB, s *store.Store, w store.Write) *store.Object {
	t.Helper()
	o, err := s.Commit(t.Context(), w)
	if err != nil {
		t.Fatalf("commit of %s: %v", w.Key, err)
	}
	return o
}

// Response is the result of a commit.
type Response struct {
	Object *store.Object
	Err    error
}

// Begin commits in a goroutine of its own, and returns when all goroutines of the bubble of testing/synctest wait.
func Begin(s *store.Store, w store.Write) chan Response {
	got := make(chan Response, 1)
	go func() {
		o, err := s.Commit(context.Background(), w)
		got <- Response{o, err}
	}()
	synctest.Wait()
	return got
}
