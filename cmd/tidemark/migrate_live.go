package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/etcdsnapshot"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// lockPoll is the pause between two looks whether the server has ended.
const lockPoll = 50 * time.Millisecond

// toSnapshotLive writes a snapshot file of a backup of the server, and adds the later changes when
// the server has ended.
func (m *migration) toSnapshotLive(ctx context.Context, file string) (err error) {
	// Beside the file, with a name like that of the files under way.
	temporary, err := etcdsnapshot.MakePart(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	backup, err := m.fetchCopy(ctx, filepath.Join(temporary, "copy"))
	if err != nil {
		return err
	}
	backup.ReadOnly = true
	copied, err := backup.OpenLog(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	s, report, err := m.survey(ctx, encryption.Wrap(copied, encryption.NewActive(m.set)), file)
	if err != nil {
		return err
	}
	var log store.Log // of the directory
	defer func() {
		if log != nil {
			err = errors.Join(err, log.Close())
		}
	}()
	size, err := s.WriteLive(ctx, file, m.accept, func() (store.Log, error) {
		m.steps.end(nil)
		m.steps.say("The copy has reached revision %d. Stop the server of %s: the migration goes on when it has ended.", report.Head, m.dir.Path)
		log, err = m.awaitLog(ctx)
		if err != nil {
			return nil, err
		}
		return encryption.Wrap(log, encryption.NewActive(m.set)), nil
	})
	if err == nil {
		err = m.markMoved(report, file)
	}
	if err != nil {
		return err
	}
	m.steps.end(nil)
	return m.describeSnapshot(report, file, size)
}

// fetchCopy makes a copy of the directory from a backup of its server.
func (m *migration) fetchCopy(ctx context.Context, path string) (*datadir.Dir, error) {
	kubeconfig := cmp.Or(m.kubeconfig, filepath.Join(m.dir.Path, "kubeconfig"))
	config, err := clientconfig.REST(clientconfig.Load(kubeconfig, ""))
	if err != nil {
		return nil, fmt.Errorf("the server of %s: %w; name its kubeconfig with --kubeconfig", m.dir.Path, err)
	}
	client, err := serverclient.New(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", kubeconfig, err)
	}
	response, err := client.Do(ctx, http.MethodGet, "/backup", "", nil)
	if err != nil {
		return nil, fmt.Errorf("a backup of the server of %s: %w; if it does not run, leave out --live", m.dir.Path, err)
	}
	defer response.Body.Close()
	m.steps.at("fetching a backup", 0, 0)
	d := &datadir.Dir{Path: path, Follows: client.URL}
	if _, err := d.MakeCopy(ctx, response.Body); err != nil {
		return nil, fmt.Errorf("a backup of the server of %s: %w", m.dir.Path, err)
	}
	return d, nil
}

// awaitLog opens the log of the directory, for reading alone, as soon as no server has it.
func (m *migration) awaitLog(ctx context.Context) (store.Log, error) {
	m.dir.ReadOnly = true
	for {
		log, err := m.dir.OpenLog(ctx)
		if !errors.Is(err, datadir.ErrInUse) {
			return log, err
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
