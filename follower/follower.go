// Package follower keeps the objects of a server in step with those of another one, which it follows. A follower
// responds to reads and watches from its own copy, has the server that it follows make its writes, and can take that
// server's place.
package follower

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
	"github.com/tidemark-dev/tidemark/internal/storage"
)

// Copy is the copy of the objects of a server. Fill in Server and Data, and use it as the Storage of a
// tidemark.Server. The fields are not changed after the first call.
type Copy struct {
	// Server is how to reach the server that is followed. Its user has to be allowed to get /backup, and to
	// get and post the paths below /replication.
	Server *rest.Config
	// Data is the data directory of the copy. It does not exist, is empty, or is a copy of the server. Open sets
	// its Follows.
	Data *datadir.Dir
	// HealthTimeout and ReadyTimeout are how long the health checks etcd and etcd-readiness wait for the server.
	// Zero: 2 seconds.
	HealthTimeout, ReadyTimeout time.Duration
	// Logger gets messages about the connection; nil: they are discarded.
	Logger *slog.Logger
}

// Open opens the copy. It makes the copy if there is none, and makes it again if the history of the server does not reach
// back to it. While the server cannot be reached, a copy that exists is opened as it is, and compared later. Open returns
// an error if there is no copy and the server cannot be reached, and if the copy has changes that the server does not
// have. A tidemark.Server calls it.
func (c *Copy) Open(ctx context.Context, o storage.Options) (*storage.Opened, error) {
	log, encrypted, err := c.open(ctx, o.Encryption)
	if err != nil {
		return nil, err
	}
	encrypted.StandIns = o.StandIns
	const usual = 2 * time.Second
	return &storage.Opened{
		Shared: log, Encryption: encrypted, Dir: c.Data.Path,
		HealthTimeout: cmp.Or(c.HealthTimeout, usual), ReadyTimeout: cmp.Or(c.ReadyTimeout, usual),
		Followed: &storage.Followed{URL: c.Server.Host, Lag: log.Lag, Facts: log.Facts, Unread: encrypted.Unread},
	}, nil
}

func (c *Copy) open(ctx context.Context, e *encryption.Active) (*replication.Log, *encryption.Log, error) {
	client, err := serverclient.New(c.Server)
	if err != nil {
		return nil, nil, err
	}
	c.Data.Follows = client.URL
	logger := c.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	for again := false; ; again = true {
		opened, err := c.openCopy(ctx, client, logger, again)
		if err != nil {
			return nil, nil, err
		}
		copied, head := opened.Log, opened.Head
		encrypted := encryption.Wrap(copied, e)
		how, err := replication.Compare(ctx, client, encrypted, head)
		switch {
		case !again && unreachable(err) && ctx.Err() == nil:
			logger.Warn("the server that this one follows cannot be reached; the state is that of the copy until then", "server", client.URL, "revision", head, "err", err)
			return replication.NewLog(client, encrypted, head, logger), encrypted, nil // which compares before it goes on
		case err != nil:
			return nil, nil, errors.Join(fmt.Errorf("the server %s, which this one follows: %w", client.URL, err), copied.Close())
		case how == replication.CopyContinues:
			return replication.NewLog(client, encrypted, head, logger), encrypted, nil
		case how == replication.CopyExpired && !again:
			logger.Warn("the history of the server does not reach back to the copy, which is made again", "server", client.URL, "revision", head)
			if err := copied.Close(); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, errors.Join(fmt.Errorf("data directory %s: it has changes that the server %s does not have, or is the copy of another server: choose an empty or a new directory", c.Data.Path, client.URL), copied.Close())
		}
	}
}

// unreachable reports whether the server failed to respond, as opposed to refusing, or to a failure of the copy.
func unreachable(err error) bool {
	if replication.OfCopy(err) {
		return false
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	return err != nil && !errors.As(err, new(*tls.CertificateVerificationError))
}

// openCopy opens the directory of the copy. It first makes the copy if there is none, or if it is to be made again.
func (c *Copy) openCopy(ctx context.Context, client *serverclient.Client, logger *slog.Logger, again bool) (copied *storage.Opened, err error) {
	err = datadir.ErrNoCopy
	if !again {
		copied, err = c.Data.Open(ctx, storage.Options{})
	}
	if !errors.Is(err, datadir.ErrNoCopy) {
		return copied, err
	}
	if err := c.fetch(ctx, client, logger); err != nil {
		return nil, err
	}
	return c.Data.Open(ctx, storage.Options{})
}

// fetch makes the copy from a backup.
func (c *Copy) fetch(ctx context.Context, client *serverclient.Client, logger *slog.Logger) error {
	began := time.Now()
	backup, err := c.backup(ctx, client)
	if err != nil {
		return fmt.Errorf("a backup of the server %s, which this one follows: %w", client.URL, err)
	}
	defer backup.Close()
	about, err := c.Data.MakeCopy(ctx, backup)
	if err != nil {
		return fmt.Errorf("the copy of the server %s: %w", client.URL, err)
	}
	logger.Info("made a copy", "server", client.URL, "objects", about.Log.Objects, "revision", about.Log.ResourceVersion, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// backup asks for a backup until the server makes one: it makes one at a time.
func (c *Copy) backup(ctx context.Context, client *serverclient.Client) (io.ReadCloser, error) {
	const patience = 30 * time.Second
	for began := time.Now(); ; {
		response, err := client.Do(ctx, http.MethodGet, "/backup", "", nil)
		switch {
		case err == nil:
			return response.Body, nil
		case !apierrors.IsTooManyRequests(err), time.Since(began) > patience:
			return nil, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
