package tidemark_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/statusapi"
)

// TestScheduledBackup starts a server that has missed a time of its schedule: it makes a backup, which restores. Its
// status and metrics show it, to users with the right alone.
func TestScheduledBackup(t *testing.T) {
	t.Parallel()
	dir, place := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place, "tidemark-20200101T000000Z.tar"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := on(dir)
	made := make(chan struct{})
	s.Backups = tidemark.Backups{Schedule: "@yearly", Place: noticed{&backups.Folder{Path: place}, made}, Keep: 1}
	servertest.Start(t, s)
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("one", "1"))
	<-made // the old backup was removed, which is the last step
	must(t, servertest.Anonymous(s), http.StatusForbidden, "GET", "/status", "")
	must(t, s.RESTConfig(), http.StatusMethodNotAllowed, "POST", "/status", "")
	var got statusapi.Status
	if err := json.Unmarshal([]byte(must(t, s.RESTConfig(), http.StatusOK, "GET", "/status", "")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Role != statusapi.Single || got.Storage.Path != dir || got.Objects.Count == 0 || got.History.Newest.Time.IsZero() || got.History.Oldest.Time.IsZero() ||
		got.History.Newest.ResourceVersion <= got.History.Oldest.ResourceVersion || len(got.Addresses) != 1 || got.Forks == nil {
		t.Errorf("%+v", got)
	}
	b := got.Backups
	if b == nil || b.Last == nil || b.Failure != nil || b.Place != place || b.Next.IsZero() {
		t.Fatalf("%+v", b)
	}
	if text := must(t, s.RESTConfig(), http.StatusOK, "GET", "/metrics", ""); !strings.Contains(text, "tidemark_backups_total 1") {
		t.Error("the metrics do not show the backup")
	}
	archive, err := os.ReadFile(filepath.Join(place, b.Last.Name))
	if err != nil || int64(len(archive)) != b.Last.Bytes {
		t.Fatalf("%d bytes, %v", len(archive), err)
	}
	restored := &datadir.Dir{Path: filepath.Join(t.TempDir(), "restored")}
	if _, err := restored.Restore(t.Context(), bytes.NewReader(archive), datadir.RestoreOptions{}); err != nil {
		t.Error(err)
	}
	// A killed process leaves a part of a backup: none restores.
	for _, n := range []int{0, 1, len(archive) / 2, len(archive) / 10 * 9} {
		cut := &datadir.Dir{Path: filepath.Join(t.TempDir(), "cut")}
		if _, err := cut.Restore(t.Context(), bytes.NewReader(archive[:n]), datadir.RestoreOptions{}); err == nil {
			t.Errorf("%d of %d bytes were restored", n, len(archive))
		}
	}
}

// noticed closes a channel when the first backup was removed.
type noticed struct {
	*backups.Folder
	removed chan struct{}
}

func (n noticed) Remove(ctx context.Context, name string) error {
	defer close(n.removed)
	return n.Folder.Remove(ctx, name)
}

// TestBackupsRefused: schedules that no server can have.
func TestBackupsRefused(t *testing.T) {
	t.Parallel()
	place := &backups.Folder{Path: filepath.Join(t.TempDir(), "backups")}
	for want, b := range map[string]tidemark.Backups{
		"in memory only":      {Schedule: "@daily", Place: place},
		"without a place":     {Schedule: "@daily"},
		"without a schedule":  {Place: place},
		"want five fields":    {Schedule: "daily", Place: place},
		"a pause of":          {Schedule: "@every 1s", Place: place},
		"no time in the next": {Schedule: "0 0 30 2 *", Place: place},
	} {
		s := tidemark.Server{Backups: b}
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", b, err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
