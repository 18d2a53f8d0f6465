package autobackup_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/internal/autobackup"
	"github.com/tidemark-dev/tidemark/internal/cron"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// world is a loop on a folder, in a bubble, where time begins at midnight of 2000-01-01 UTC.
type world struct {
	t      *testing.T
	folder *backups.Folder
	loop   *autobackup.Loop
	config autobackup.Config
	log    strings.Builder
	begun  []string // the times of the calls of Write
	write  error    // of the next backups
	verify error
}

func newWorld(t *testing.T, schedule string) *world {
	t.Helper()
	s, err := cron.Parse("TZ=UTC " + schedule)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, folder: &backups.Folder{Path: filepath.Join(t.TempDir(), "backups")}}
	if err := w.folder.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.folder.Close(); err != nil {
			t.Error(err)
		}
	})
	w.config = autobackup.Config{
		Place: w.folder, Schedule: s, Timeout: time.Hour, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Write: func(_ context.Context, to io.Writer) error {
			w.begun = append(w.begun, time.Now().UTC().Format("02 15:04:05"))
			if w.write != nil {
				_, err := io.WriteString(to, "half a ")
				return errors.Join(err, w.write)
			}
			_, err := io.WriteString(to, "a backup")
			return err
		},
		Verify: func(_ context.Context, from io.Reader) error {
			if b, err := io.ReadAll(from); err != nil || string(b) != "a backup" {
				t.Errorf("the place has %q, %v", b, err)
			}
			return w.verify
		},
	}
	return w
}

// run runs the loop for a while.
func (w *world) run(d time.Duration) autobackup.Status {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	w.loop = autobackup.New(w.config)
	done := make(chan struct{})
	go func() { defer close(done); w.loop.Run(ctx) }()
	<-done
	return w.loop.Status()
}

// files returns the files of the folder, without the lock.
func (w *world) files() []string {
	w.t.Helper()
	entries, err := os.ReadDir(w.folder.Path)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Name() != "LOCK" {
			all = append(all, e.Name())
		}
	}
	return all
}

func (w *world) want(names ...string) {
	w.t.Helper()
	if got := w.files(); !slices.Equal(got, names) {
		w.t.Errorf("the folder has %q, want %q", got, names)
	}
}

func (w *world) wantBegun(times ...string) {
	w.t.Helper()
	if !slices.Equal(w.begun, times) {
		w.t.Errorf("backups began at %q, want %q", w.begun, times)
	}
}

func (w *world) put(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(w.folder.Path, name), []byte("an old one"), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestSchedule makes a backup each night, and keeps three. Other files stay.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "30 2 * * *")
		w.config.Keep = 3
		w.put("notes.tar", "tidemark-1999.tar")
		s := w.run(5 * 24 * time.Hour)
		w.wantBegun("01 02:30:00", "02 02:30:00", "03 02:30:00", "04 02:30:00", "05 02:30:00")
		w.want("notes.tar", "tidemark-1999.tar", "tidemark-20000103T023000Z.tar", "tidemark-20000104T023000Z.tar", "tidemark-20000105T023000Z.tar")
		if s.Made != 5 || s.Failed != 0 || s.Failure != nil || s.Kept != 3 || s.KeptBytes != 24 || s.Last.Name != "tidemark-20000105T023000Z.tar" ||
			s.Last.Bytes != 8 || !s.Next.Equal(time.Date(2000, 1, 6, 2, 30, 0, 0, time.UTC)) || s.Running {
			t.Errorf("%+v", s)
		}
		for _, name := range w.files()[2:] {
			if info, err := os.Stat(filepath.Join(w.folder.Path, name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	})
}

// TestFailure: a backup that cannot be written, or does not read back, is tried again, and nothing is removed until one
// succeeds.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "0 12 * * *")
		w.config.Keep = 1
		old := []string{"tidemark-19991230T120000Z.tar", "tidemark-19991231T120000Z.tar"}
		w.put(old...)
		w.write = errors.New("the disk has gone")
		s := w.run(12*time.Hour + 7*time.Minute + time.Second)
		w.wantBegun("01 12:00:00", "01 12:01:00", "01 12:03:00", "01 12:07:00")
		w.want(old...)
		if s.Failed != 4 || s.Made != 0 || s.Failure == nil || !strings.Contains(s.Failure.Error(), "the disk has gone") || s.Last.Name != old[1] {
			t.Errorf("%+v", s)
		}
		w.write, w.verify, w.begun = nil, errors.New("a wrong checksum"), nil
		s = w.run(59 * time.Second) // it ends before the next try
		w.wantBegun("01 12:07:01")  // the time of the schedule is made up for
		w.want(old...)
		if s.Failed != 1 || s.Failure == nil || !strings.Contains(s.Failure.Error(), "a wrong checksum") || !strings.Contains(w.log.String(), "a wrong checksum") {
			t.Errorf("%+v\n%s", s, &w.log)
		}
		w.verify = nil
		if s = w.run(time.Minute); s.Failure != nil || s.Made != 1 || s.Kept != 1 {
			t.Errorf("%+v", s)
		}
		w.want("tidemark-20000101T120800Z.tar")
	})
}

// TestRetries: many failures do not move the next time of the schedule, and pauses end at an hour.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "0 12 * * *")
		w.write = errors.New("no")
		w.run(35*time.Hour + 59*time.Minute)
		if n := len(w.begun); n != 7+22 || w.begun[6] != "01 13:03:00" || w.begun[7] != "01 14:03:00" {
			t.Errorf("%d tries: %q", n, w.begun)
		}
		w.begun = nil
		w.run(2*time.Minute + time.Second)
		w.wantBegun("02 12:00:00", "02 12:01:00")
	})
}

// TestMakeUp: a server that did not run at a time of the schedule makes the backup when it starts, once.
func TestMakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "@hourly")
		w.put("tidemark-19991231T180000Z.tar", "tidemark-19991231T170000Z.tar", "tidemark-19991231T190000Z.tar.part")
		if s := w.run(time.Second); s.Last.Name != "tidemark-20000101T000000Z.tar" {
			t.Errorf("%+v", s)
		}
		w.want("tidemark-19991231T170000Z.tar", "tidemark-19991231T180000Z.tar", "tidemark-20000101T000000Z.tar")
		w.run(time.Minute)
		w.wantBegun("01 00:00:00")
	})
}

// TestAge: backups end with their age, but for the last one, and whatever the clock showed when they were made.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "@hourly")
		w.config.MaxAge = 24 * time.Hour
		w.put("tidemark-19991230T000000Z.tar", "tidemark-19991231T020000Z.tar", "tidemark-20991231T000000Z.tar")
		w.run(time.Hour + time.Second)
		w.want("tidemark-19991231T020000Z.tar", "tidemark-20000101T010000Z.tar", "tidemark-20991231T000000Z.tar")
		w.config.MaxAge, w.config.Keep = time.Nanosecond, 1
		w.run(time.Hour)
		w.want("tidemark-20000101T020000Z.tar")
	})
}

// TestBusy checks that while another backup runs, the loop waits, and reports no failure.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "@hourly")
		w.write = store.ErrBackupRunning
		if s := w.run(time.Hour + 25*time.Second); s.Failed != 0 || s.Failure != nil {
			t.Errorf("%+v", s)
		}
		w.wantBegun("01 01:00:00", "01 01:00:10", "01 01:00:20")
		w.want()
	})
}

// TestStop: a backup under way ends with the server, and is no failure.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "@hourly")
		w.config.Write = func(ctx context.Context, to io.Writer) error {
			_, err := io.WriteString(to, "half")
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		}
		ctx, cancel := context.WithCancel(t.Context())
		l := autobackup.New(w.config)
		time.AfterFunc(90*time.Minute, cancel)
		l.Run(ctx)
		if s := l.Status(); s.Failed != 0 || s.Failure != nil || s.Running {
			t.Errorf("%+v", s)
		}
		w.want()
	})
}

// TestTimeout: a place that hangs does not stop the schedule.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "@daily")
		w.config.Timeout = time.Minute
		w.config.Write = func(ctx context.Context, _ io.Writer) error { <-ctx.Done(); return ctx.Err() }
		if s := w.run(24*time.Hour + 90*time.Second); s.Failed != 1 || s.Failure == nil || !strings.Contains(s.Failure.Error(), "deadline") {
			t.Errorf("%+v", s)
		}
	})
}

// TestTwice: a folder has one server.
func TestTwice(t *testing.T) {
	w := newWorld(t, "@daily")
	second := &backups.Folder{Path: w.folder.Path}
	if err := second.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "another server makes its backups") {
		t.Errorf("a second server: %v", err)
	}
}
