package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// interval is one part of a list of indexes: "1,3-5" has two.
type interval struct{ first, last int32 }

// parseInterval parses an interval of indexes below completions.
func parseInterval(s string, completions int32) (i interval, err error) {
	parts := strings.Split(s, "-")
	if len(parts) > 2 {
		return i, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", s)
	}
	if i.first, err = parseIndex(parts[0], completions); err != nil || len(parts) == 1 {
		return interval{i.first, i.first}, err
	}
	if i.last, err = parseIndex(parts[1], completions); err != nil {
		return i, err
	}
	if i.first >= i.last {
		return i, fmt.Errorf("non-increasing order, previous: %d, current: %d", i.first, i.last)
	}
	return i, nil
}

func parseIndex(s string, completions int32) (int32, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", s)
	}
	if n >= int(completions) {
		return 0, fmt.Errorf("too large index: %q", s)
	}
	return int32(n), nil
}

// countIndexes counts the indexes of a list, which must be ascending.
func countIndexes(list string, completions int32) (total int32, err error) {
	if list == "" {
		return 0, nil
	}
	var before *int32
	for part := range strings.SplitSeq(list, ",") {
		i, err := parseInterval(part, completions)
		if err != nil {
			return 0, err
		}
		if before != nil && *before >= i.first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", *before, i.first)
		}
		total += i.last - i.first + 1
		before = &i.last
	}
	return total, nil
}

// readable returns the intervals of a list, without invalid ones.
func readable(list string, completions int32) (all []interval) {
	for part := range strings.SplitSeq(list, ",") {
		if i, err := parseInterval(part, completions); err == nil {
			all = append(all, i)
		}
	}
	return all
}

// overlap returns an index that is in both lists.
func overlap(completed, failed string, completions int32) (at int32, found bool) {
	if completed == "" || failed == "" {
		return 0, false
	}
	a, b := readable(completed, completions), readable(failed, completions)
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].first <= b[0].last && b[0].first <= a[0].last:
			return max(a[0].first, b[0].first), true
		case a[0].first <= b[0].first:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return 0, false
}
