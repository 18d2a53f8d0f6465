package world

import (
	"context"
	"errors"
	"io"

	"github.com/tidemark-dev/tidemark/internal/autobackup"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
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

// backupMetrics returns the metrics of the scheduled backups.
func (s *Server) backupMetrics() []httpapi.Metric {
	if s.backups == nil {
		return nil
	}
	status := s.backups.Status()
	all := []httpapi.Metric{
		{
			Name: "tidemark_backups_total", Counter: true,
			Help:  "Backups that the schedule has made.",
			Value: float64(status.Made),
		},
		{
			Name: "tidemark_backup_last_timestamp_seconds",
			Help: "When the newest backup of the schedule began, in seconds since 1970; 0 if there is none.",
		},
		{
			Name:  "tidemark_backup_last_bytes",
			Help:  "The size of the newest backup of the schedule.",
			Value: float64(status.Last.Bytes),
		},
		{
			Name:  "tidemark_backup_kept",
			Help:  "How many backups of the schedule are kept.",
			Value: float64(status.Kept),
		},
		{
			Name:  "tidemark_backup_kept_bytes",
			Help:  "The size of the backups of the schedule that are kept.",
			Value: float64(status.KeptBytes),
		},
	}
	if !status.LastAt.IsZero() {
		all[1].Value = float64(status.LastAt.Unix())
	}
	for step, n := range map[string]int64{"make": status.Failed, "remove": status.NotRemoved} {
		all = append(all, httpapi.Metric{
			Name: "tidemark_backup_failures_total", Labels: map[string]string{"step": step}, Counter: true, Value: float64(n),
			Help: "Backups of the schedule that failed, and failures to remove old ones.",
		})
	}
	return all
}
