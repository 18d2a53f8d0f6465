package world

import (
	"context"
	"errors"
	"io"

	"github.com/tidemark-dev/tidemark/internal/autobackup"
	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// startBackups begins to make backups, until the server ends.
func (s *Server) startBackups(ctx context.Context) error {
	p, b := s.process, &s.process.Backups
	if b.Schedule == nil {
		return nil
	}
	log := p.logOf(logBackups)
	if f := p.storage.Followed; f != nil {
		log.Info("this server makes no backups while it follows another one, which makes its own", "follows", f.URL)
		return nil
	}
	if err := b.Place.Open(ctx); err != nil {
		return err
	}
	s.backups = autobackup.New(autobackup.Config{
		Place: b.Place, Schedule: b.Schedule, Keep: b.Keep, MaxAge: b.MaxAge,
		Timeout: p.backupTime(), Write: s.writeBackup, Verify: p.storage.Backups.Verify, Log: log,
	})
	s.background.Go(func() {
		s.backups.Run(p.ending)
		if err := b.Place.Close(); err != nil {
			log.Warn("the place for backups", "err", err)
		}
	})
	return nil
}

// writeBackup writes a backup of the storage.
func (s *Server) writeBackup(ctx context.Context, to io.Writer) (err error) {
	b, err := s.beginBackup(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return b.Write(ctx, to)
}

// exposeBackups writes the metrics of the scheduled backups.
func (s *Server) exposeBackups(w *exposition.Writer) {
	if s.backups == nil {
		return
	}
	status := s.backups.Status()
	last := 0.0
	if !status.LastAt.IsZero() {
		last = float64(status.LastAt.Unix())
	}
	w.Counter("tidemark_backups_total", float64(status.Made),
		"Backups that the schedule has made.")
	w.Gauge("tidemark_backup_last_timestamp_seconds", last,
		"When the newest backup of the schedule began, in seconds since 1970; 0 if there is none.")
	w.Gauge("tidemark_backup_last_bytes", float64(status.Last.Bytes),
		"The size of the newest backup of the schedule.")
	w.Gauge("tidemark_backup_kept", float64(status.Kept),
		"How many backups of the schedule are kept.")
	w.Gauge("tidemark_backup_kept_bytes", float64(status.KeptBytes),
		"The size of the backups of the schedule that are kept.")
	w.Family("tidemark_backup_failures_total", exposition.CounterKind,
		"Backups of the schedule that failed, and failures to remove old ones.")
	w.Float(exposition.Labels("step", "make"), float64(status.Failed))
	w.Float(exposition.Labels("step", "remove"), float64(status.NotRemoved))
}
