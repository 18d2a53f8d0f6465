package servertest

import (
	"context"
	"time"

	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
)

// OnLog is the storage of a server whose objects are in a log in memory that other servers append to as well.
type OnLog struct {
	Log    *sharedmem.Log
	Dir    string            // keys and certificates, which the servers on a log share
	Member *sharedmem.Member // the server's view of the log, from Open on
}

// Open implements tidemark.Storage.
func (o *OnLog) Open(_ context.Context, with storage.Options) (*storage.Opened, error) {
	with.Encryption.Close()
	o.Member = o.Log.Open()
	return &storage.Opened{Shared: o.Member, Dir: o.Dir, HealthTimeout: time.Second, ReadyTimeout: time.Second}, nil
}
