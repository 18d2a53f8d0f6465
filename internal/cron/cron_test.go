package cron_test

import (
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/cron"
)

// TestNext compares the next times of schedules.
func TestNext(t *testing.T) {
	const form = "Mon 2006-01-02 15:04:05 MST"
	for _, c := range []struct{ spec, from, want string }{
		{"TZ=UTC * * * * *", "Sun 2026-11-29 17:59:30 UTC", "Sun 2026-11-29 18:00:00 UTC"},
		{"TZ=UTC 0 */12 * * *", "Sun 2026-11-29 12:00:00 UTC", "Mon 2026-11-30 00:00:00 UTC"},
		{"TZ=UTC @daily", "Sun 2026-11-29 00:00:00 UTC", "Mon 2026-11-30 00:00:00 UTC"},
		{"TZ=UTC @hourly", "Thu 2026-12-31 23:00:00 UTC", "Fri 2027-01-01 00:00:00 UTC"},
		{"TZ=UTC @weekly", "Sun 2026-11-29 00:00:00 UTC", "Sun 2026-12-06 00:00:00 UTC"},
		{"TZ=UTC 15,45 3-4 * * *", "Sun 2026-11-29 03:15:00 UTC", "Sun 2026-11-29 03:45:00 UTC"},
		{"TZ=UTC 30 2 29 feb *", "Sun 2026-11-29 00:00:00 UTC", "Tue 2028-02-29 02:30:00 UTC"},
		// A day of the month or one of the week; with *, both.
		{"TZ=UTC 0 0 13 * fri", "Sun 2026-11-29 00:00:00 UTC", "Fri 2026-12-04 00:00:00 UTC"},
		{"TZ=UTC 0 0 ? * mon", "Mon 2026-11-30 00:00:00 UTC", "Mon 2026-12-07 00:00:00 UTC"},
		{"TZ=UTC 0 0 */30 * mon", "Mon 2026-11-30 00:00:00 UTC", "Tue 2026-12-01 00:00:00 UTC"},
		{"TZ=UTC @every 90m", "Sun 2026-11-29 23:00:00 UTC", "Mon 2026-11-30 00:30:00 UTC"},
		// Summer time: 02:30 does not exist on the first day, and hours pass twice on the other.
		{"TZ=Europe/Berlin 30 2 * * *", "Sat 2026-03-28 03:00:00 UTC", "Mon 2026-03-30 00:30:00 UTC"},
		{"TZ=Europe/Berlin 0 0 * * *", "Sat 2026-10-24 22:00:00 UTC", "Sun 2026-10-25 23:00:00 UTC"},
		// Midnight does not exist.
		{"TZ=America/Asuncion 0 1 * * *", "Sun 2023-10-01 02:00:00 UTC", "Sun 2023-10-01 04:00:00 UTC"},
	} {
		s, err := cron.Parse(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		from, err := time.Parse(form, c.from)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(from).UTC().Format(form); got != c.want {
			t.Errorf("%s after %s: %s, want %s", c.spec, c.from, got, c.want)
		}
	}
	never, err := cron.Parse("0 0 30 2 *")
	if err != nil {
		t.Fatal(err)
	}
	if got := never.Next(time.Now()); !got.IsZero() {
		t.Errorf("the 30th of February: %v", got)
	}
}
