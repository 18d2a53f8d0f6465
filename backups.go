package tidemark

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/internal/cron"
	"github.com/tidemark-dev/tidemark/internal/world"
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
	// Place is where they are kept, such as a *backups.Folder. The server opens and closes it. Nil without a
	// Schedule alone.
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

func (b *Backups) config() (world.Backups, error) {
	schedule, err := b.schedule()
	return world.Backups{Schedule: schedule, Text: b.Schedule, Place: b.Place, Keep: max(cmp.Or(b.Keep, DefaultBackupKeep), 0), MaxAge: b.MaxAge}, err
}
