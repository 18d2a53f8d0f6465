// Package cron reads schedules as cron and CronJobs have them, and returns when they are due.
package cron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Schedule is a set of minutes, or a pause between two times. It is safe for concurrent use.
type Schedule struct {
	minutes, hours, days, months, weekdays set
	// anyDay: days or weekdays have * or ?, so that both must hold. Otherwise one of them suffices.
	anyDay bool
	every  time.Duration // of @every; zero: the sets hold
	zone   *time.Location
}

// set has a bit for each number.
type set uint64

func (s set) has(n int) bool { return s&(1<<n) != 0 }

// scheduleField is one of the five fields of a schedule.
type scheduleField struct {
	least, most uint
	// names, from least on, stand for numbers.
	names []string
}

var scheduleFields = [...]scheduleField{
	{least: 0, most: 59},
	{least: 0, most: 23},
	{least: 1, most: 31},
	{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// descriptors are the words that stand for five fields.
var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads a schedule as cron does: five fields, or a word like @daily, or
// @every and a duration; a time zone may precede them. Without one, the schedule is in local time.
// The errors have the words of Kubernetes.
func Parse(spec string) (*Schedule, error) {
	s := &Schedule{zone: time.Local}
	if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
		zone, rest, ok := strings.Cut(spec[strings.IndexByte(spec, '=')+1:], " ")
		if !ok {
			return nil, errors.New("invalid schedule format: runtime error: slice bounds out of range [" + strconv.Itoa(strings.IndexByte(spec, '=')+1) + ":-1]")
		}
		var err error
		if s.zone, err = time.LoadLocation(zone); err != nil {
			return nil, fmt.Errorf("provided bad location %s: %v", zone, err)
		}
		spec = strings.TrimSpace(rest)
	}
	if duration, ok := strings.CutPrefix(spec, "@every "); ok {
		var err error
		if s.every, err = time.ParseDuration(duration); err != nil {
			return nil, fmt.Errorf("failed to parse duration %s: %s", spec, err)
		}
		s.every = max(s.every.Truncate(time.Second), time.Second)
		return s, nil
	}
	if strings.HasPrefix(spec, "@") {
		fields, ok := descriptors[spec]
		if !ok {
			return nil, fmt.Errorf("unrecognized descriptor: %s", spec)
		}
		spec = fields
	}
	return s, s.parseFields(strings.Fields(spec))
}

func (s *Schedule) parseFields(fields []string) error {
	if len(fields) != len(scheduleFields) {
		return fmt.Errorf("expected exactly %d fields, found %d: %s", len(scheduleFields), len(fields), fields)
	}
	for i, to := range []*set{&s.minutes, &s.hours, &s.days, &s.months, &s.weekdays} {
		for part := range strings.SplitSeq(fields[i], ",") {
			if part == "" {
				continue
			}
			in, err := scheduleFields[i].parse(part)
			if err != nil {
				return err
			}
			*to |= in
		}
	}
	s.anyDay = star(fields[2]) || star(fields[4])
	return nil
}

// star reports whether a field has * or ? without a step.
func star(field string) bool {
	return slices.ContainsFunc(strings.Split(field, ","), func(part string) bool { return part == "*" || part == "?" })
}

// horizon is how far Next looks: the 29th of February comes once in eight years at the worst.
const horizon = 10

// Next returns the first time after t at which the schedule is due. Zero: there is none, as for the 30th of February. An
// hour that summer time skips has no times.
func (s *Schedule) Next(t time.Time) time.Time {
	if s.every > 0 {
		return t.Truncate(time.Second).Add(s.every)
	}
	t = t.In(s.zone).Truncate(time.Minute).Add(time.Minute)
	for end := t.Year() + horizon; t.Year() <= end; {
		switch {
		case !s.months.has(int(t.Month())):
			t = later(t, time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, s.zone))
		case !s.day(t):
			t = later(t, time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, s.zone))
		case !s.hours.has(t.Hour()):
			t = t.Add(time.Hour - time.Duration(t.Minute())*time.Minute)
		case !s.minutes.has(t.Minute()):
			t = t.Add(time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

// later returns next, or an hour after t where summer time begins at midnight and next is not after t.
func later(t, next time.Time) time.Time {
	if next.After(t) {
		return next
	}
	return t.Add(time.Hour)
}

func (s *Schedule) day(t time.Time) bool {
	month, week := s.days.has(t.Day()), s.weekdays.has(int(t.Weekday()))
	if s.anyDay {
		return month && week
	}
	return month || week
}

// parse reads a number, a range or all, with a step or without.
func (f *scheduleField) parse(expr string) (set, error) {
	parts := strings.Split(expr, "/")
	ends := strings.Split(parts[0], "-")
	start, end, step := f.least, f.most, uint(1)
	if ends[0] != "*" && ends[0] != "?" {
		var err error
		if start, err = f.number(ends[0]); err != nil {
			return 0, err
		}
		switch len(ends) {
		case 1:
			end = start
		case 2:
			if end, err = f.number(ends[1]); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("too many hyphens: %s", expr)
		}
	}
	switch len(parts) {
	case 1:
	case 2:
		var err error
		if step, err = natural(parts[1]); err != nil {
			return 0, err
		}
		if len(ends) == 1 {
			end = f.most
		}
	default:
		return 0, fmt.Errorf("too many slashes: %s", expr)
	}
	switch {
	case start < f.least:
		return 0, fmt.Errorf("beginning of range (%d) below minimum (%d): %s", start, f.least, expr)
	case end > f.most:
		return 0, fmt.Errorf("end of range (%d) above maximum (%d): %s", end, f.most, expr)
	case start > end:
		return 0, fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", start, end, expr)
	case step == 0:
		return 0, fmt.Errorf("step of range should be a positive number: %s", expr)
	}
	var in set
	for n := start; n <= end; n += step {
		in |= 1 << n
	}
	return in, nil
}

// number is that of a name, or of digits.
func (f *scheduleField) number(s string) (uint, error) {
	lower := strings.ToLower(s)
	for i, name := range f.names {
		if name == lower {
			return f.least + uint(i), nil
		}
	}
	return natural(s)
}

func natural(s string) (uint, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s: %s", s, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, s)
	}
	return uint(n), nil
}
