package changes

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Instant names a state: a revision, a time, or the present.
type Instant struct {
	Revision uint64
	Time     time.Time
	Now      bool
}

// String returns the instant as URLs have it, "now" for the present.
func (i Instant) String() string {
	switch {
	case i.Now:
		return "now"
	case i.Revision > 0:
		return strconv.FormatUint(i.Revision, 10)
	}
	return i.Time.UTC().Format(time.RFC3339Nano)
}

// forms of instants, for error messages.
const forms = "a revision, a time such as 2026-11-30T10:42:00Z, 10:42 or \"yesterday 10:42\", a duration back such as -10m, or now"

// ParseInstant parses an instant as users write it. now is the present in their zone.
func ParseInstant(text string, now time.Time) (Instant, error) {
	s := strings.TrimSpace(text)
	if s == "now" {
		return Instant{Now: true}, nil
	}
	if i, ok, err := parseAbsolute(s); ok || err != nil {
		return i, err
	}
	if back, ok := strings.CutPrefix(s, "-"); ok {
		d, err := parseDuration(back)
		if err != nil {
			return Instant{}, fmt.Errorf("%q is no instant: want a duration back such as -10m, -2h30m or -1d", text)
		}
		return Instant{Time: now.Add(-d)}, nil
	}
	day, clock := now, s
	if words := strings.Fields(s); len(words) == 2 {
		clock = words[1]
		switch date, err := time.ParseInLocation(time.DateOnly, words[0], now.Location()); {
		case err == nil:
			day = date
		case words[0] == "yesterday":
			day = now.AddDate(0, 0, -1)
		case words[0] != "today":
			return Instant{}, fmt.Errorf("%q is no instant: want %s", text, forms)
		}
	}
	var at time.Time
	var err error
	for _, layout := range []string{"15:04", "15:04:05", "15:04:05.999999999"} {
		if at, err = time.Parse(layout, clock); err == nil {
			break
		}
	}
	if err != nil {
		return Instant{}, fmt.Errorf("%q is no instant: want %s", text, forms)
	}
	t := time.Date(day.Year(), day.Month(), day.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), now.Location())
	if t.After(now) {
		return Instant{}, fmt.Errorf("%s is still to come: it is %s; want \"yesterday %s\", or a date", text, now.Format("2006-01-02 15:04:05"), clock)
	}
	return Instant{Time: t}, nil
}

// parseAbsolute parses what does not depend on the present.
func parseAbsolute(s string) (i Instant, ok bool, err error) {
	if s != "" && strings.Trim(s, "0123456789") == "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n == 0 {
			return Instant{}, false, fmt.Errorf("%q is no revision: want a number above zero that has at most 64 bits", s)
		}
		return Instant{Revision: n}, true, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return Instant{Time: t}, true, nil
	}
	return Instant{}, false, nil
}

// ParseSince is ParseInstant for the beginning of a range: 10m is the same as -10m.
func ParseSince(text string, now time.Time) (Instant, error) {
	if d, err := parseDuration(strings.TrimSpace(text)); err == nil {
		return Instant{Time: now.Add(-d)}, nil
	}
	return ParseInstant(text, now)
}

// ParseURL parses an instant in a URL: a revision or a time of RFC 3339.
func ParseURL(text string) (Instant, error) {
	i, ok, err := parseAbsolute(text)
	if err == nil && !ok {
		err = fmt.Errorf("%q is no instant: want a revision, or a time of RFC 3339 such as 2026-11-30T10:42:00Z", text)
	}
	return i, err
}

// parseDuration parses a duration that is not negative; days have 24 hours.
func parseDuration(s string) (time.Duration, error) {
	var days time.Duration
	if before, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(before, 10, 16)
		if err != nil {
			return 0, err
		}
		if days, s = time.Duration(n)*24*time.Hour, after; s == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || s[0] == '-' || s[0] == '+' || s == "0") {
		err = fmt.Errorf("%q has a sign or no unit", s)
	}
	return days + d, err
}
