package batch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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

// checkSchedule reads a schedule as cron does: five fields, or a word like @daily, or
// @every and a duration; a time zone may stand before them.
func checkSchedule(spec string) error {
	if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
		zone, rest, ok := strings.Cut(spec[strings.IndexByte(spec, '=')+1:], " ")
		if !ok {
			return errors.New("invalid schedule format: runtime error: slice bounds out of range [" + strconv.Itoa(strings.IndexByte(spec, '=')+1) + ":-1]")
		}
		if _, err := time.LoadLocation(zone); err != nil {
			return fmt.Errorf("provided bad location %s: %v", zone, err)
		}
		spec = strings.TrimSpace(rest)
	}
	if strings.HasPrefix(spec, "@") {
		return checkDescriptor(spec)
	}
	fields := strings.Fields(spec)
	if len(fields) != len(scheduleFields) {
		return fmt.Errorf("expected exactly %d fields, found %d: %s", len(scheduleFields), len(fields), fields)
	}
	for i := range fields {
		for part := range strings.SplitSeq(fields[i], ",") {
			if part == "" {
				continue
			}
			if err := scheduleFields[i].check(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkDescriptor(spec string) error {
	switch spec {
	case "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly":
		return nil
	}
	if duration, ok := strings.CutPrefix(spec, "@every "); ok {
		if _, err := time.ParseDuration(duration); err != nil {
			return fmt.Errorf("failed to parse duration %s: %s", spec, err)
		}
		return nil
	}
	return fmt.Errorf("unrecognized descriptor: %s", spec)
}

// check reads a number, a range or all, with a step or without.
func (f *scheduleField) check(expr string) error {
	parts := strings.Split(expr, "/")
	ends := strings.Split(parts[0], "-")
	start, end, step := f.least, f.most, uint(1)
	if ends[0] != "*" && ends[0] != "?" {
		var err error
		if start, err = f.number(ends[0]); err != nil {
			return err
		}
		switch len(ends) {
		case 1:
			end = start
		case 2:
			if end, err = f.number(ends[1]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("too many hyphens: %s", expr)
		}
	}
	switch len(parts) {
	case 1:
	case 2:
		var err error
		if step, err = natural(parts[1]); err != nil {
			return err
		}
		if len(ends) == 1 {
			end = f.most
		}
	default:
		return fmt.Errorf("too many slashes: %s", expr)
	}
	switch {
	case start < f.least:
		return fmt.Errorf("beginning of range (%d) below minimum (%d): %s", start, f.least, expr)
	case end > f.most:
		return fmt.Errorf("end of range (%d) above maximum (%d): %s", end, f.most, expr)
	case start > end:
		return fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", start, end, expr)
	case step == 0:
		return fmt.Errorf("step of range should be a positive number: %s", expr)
	}
	return nil
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
