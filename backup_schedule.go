package tidemark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/internal/autobackup"
	"github.com/tidemark-dev/tidemark/internal/cron"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/storage"
)

// DefaultBackupKeep is how many backups of the schedule are kept by default.
const DefaultBackupKeep = 5

// leastBackupPause is the shortest pause between two backups of a schedule.
const leastBackupPause = time.Minute

// Backups makes backups on a schedule, which Dir.Restore of package datadir takes. The zero value makes none. They need a
// Storage with a data directory. A server that follows another one makes none: that one does.
type Backups struct {
	// Schedule is when to make them: five fields of cron in local time, or @hourly, @daily, @weekly, @monthly, @every and
	// a duration of a minute or more. "TZ=Europe/Berlin " before it is a time zone. Empty: none are made.
	Schedule string
	// Place is where they are kept, such as a *backups.Folder. The server opens and closes it.
	Place backups.Place
	// Keep is how many are kept; zero: DefaultBackupKeep; negative: all.
	Keep int
	// MaxAge is how long they are kept; zero: for ever. The newest one is always kept.
	MaxAge time.Duration
}

// Check returns an error if the fields are not valid.
func (b *Backups) Check() error {
	_, err := b.schedule()
	return err
}

// schedule returns the schedule; nil: there is none.
func (b *Backups) schedule() (*cron.Schedule, error) {
	switch {
	case b.Schedule == "" && b.Place == nil:
		return nil, nil
	case b.Schedule == "":
		return nil, errors.New("a place for backups without a schedule: say when to make them, as @daily")
	case b.Place == nil:
		return nil, errors.New("a schedule of backups without a place: name a folder or a bucket")
	case b.MaxAge < 0:
		return nil, fmt.Errorf("backups cannot be kept for %v", b.MaxAge)
	}
	s, err := cron.Parse(b.Schedule)
	if err != nil {
		return nil, fmt.Errorf("the schedule of backups %q: %w; want five fields such as \"0 */6 * * *\", or @hourly, @daily, @every 6h", b.Schedule, err)
	}
	first := s.Next(time.Now())
	if first.IsZero() {
		return nil, fmt.Errorf("the schedule of backups %q has no time in the next years", b.Schedule)
	}
	if s.Next(first).Sub(first) < leastBackupPause {
		return nil, fmt.Errorf("the schedule of backups %q: want a pause of %v or more", b.Schedule, leastBackupPause)
	}
	return s, nil
}

// checkBackups checks the schedule of backups, before the storage is opened.
func (s *Server) checkBackups() error {
	schedule, err := s.Backups.schedule()
	switch {
	case schedule == nil || err != nil:
		return err
	case s.At != 0:
		return errors.New("backups on a schedule need the newest state: the server begins with an older one, and keeps changes in memory")
	case s.Storage == nil:
		return errors.New("backups on a schedule are those of a data directory: the objects are in memory only")
	}
	return nil
}

// checkBackupSource checks that a storage can be backed up, if there is a schedule of backups.
func (s *Server) checkBackupSource(o *storage.Opened) error {
	if s.Backups.Schedule == "" || o.Backups != nil || o.Followed != nil {
		return nil
	}
	if o.Shared != nil {
		return errors.New("backups on a schedule are those of a data directory: the objects are in etcd, which makes its own, as with etcdctl snapshot save")
	}
	return errors.New("backups on a schedule are those of a data directory, and the storage is none")
}

// startBackups begins to make backups, until the world ends.
func (w *World) startBackups(ctx context.Context) error {
	s, r := w.server, w.running
	b := &s.Backups
	schedule, err := b.schedule()
	if schedule == nil || err != nil {
		return err
	}
	log := s.logOf(logBackups)
	if f := r.storage.Followed; f != nil {
		log.Info("this server makes no backups while it follows another one, which makes its own", "follows", f.URL)
		return nil
	}
	if err := b.Place.Open(ctx); err != nil {
		return err
	}
	r.backups = autobackup.New(autobackup.Config{
		Place: b.Place, Schedule: schedule, Keep: max(cmp.Or(b.Keep, DefaultBackupKeep), 0), MaxAge: b.MaxAge,
		Timeout: cmp.Or(s.backupTime, backupTime), Write: r.writeBackup, Verify: r.storage.Backups.Verify, Log: log,
	})
	w.background.Go(func() {
		r.backups.Run(w.ending)
		if err := b.Place.Close(); err != nil {
			log.Warn("the place for backups", "err", err)
		}
	})
	return nil
}

// writeBackup writes a backup of the storage.
func (r *running) writeBackup(ctx context.Context, to io.Writer) (err error) {
	s, err := r.beginBackup(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Write(ctx, to)
}

// backupMetrics returns what became of the backups of the schedule.
func (r *running) backupMetrics() []httpapi.Metric {
	if r.backups == nil {
		return nil
	}
	s := r.backups.Status()
	all := []httpapi.Metric{
		{
			Name: "tidemark_backups_total", Counter: true,
			Help:  "Backups that the schedule has made.",
			Value: float64(s.Made),
		},
		{
			Name: "tidemark_backup_last_timestamp_seconds",
			Help: "When the newest backup of the schedule began, in seconds since 1970; 0 if there is none.",
		},
		{
			Name:  "tidemark_backup_last_bytes",
			Help:  "The size of the newest backup of the schedule.",
			Value: float64(s.Last.Bytes),
		},
		{
			Name:  "tidemark_backup_kept",
			Help:  "How many backups of the schedule are kept.",
			Value: float64(s.Kept),
		},
		{
			Name:  "tidemark_backup_kept_bytes",
			Help:  "The size of the backups of the schedule that are kept.",
			Value: float64(s.KeptBytes),
		},
	}
	if !s.LastAt.IsZero() {
		all[1].Value = float64(s.LastAt.Unix())
	}
	for step, n := range map[string]int64{"make": s.Failed, "remove": s.NotRemoved} {
		all = append(all, httpapi.Metric{
			Name: "tidemark_backup_failures_total", Labels: map[string]string{"step": step}, Counter: true, Value: float64(n),
			Help: "Backups of the schedule that failed, and failures to remove old ones.",
		})
	}
	return all
}
