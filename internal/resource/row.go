package resource

import (
	"encoding/json"
	"hash/maphash"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Row is the cells of one object in a table. Ages are inserted by Append, so that a row is
// made once and used by many requests. The zero value is a row without cells. One goroutine
// writes a row; after that it is immutable.
type Row struct {
	text       []byte // the cells as JSON, separated by commas, without the ages
	ages       []age  // in the order of their offsets
	conditions string // as JSON; empty: none
}

// age is an age that Append inserts into the text.
type age struct {
	offset int
	since  int64 // nanoseconds since 1970, or the nearest that there are
}

// at returns the age at a time, or the nearest duration: 292 years.
func (a age) at(now int64) time.Duration {
	d := now - a.since
	switch {
	case a.since < 0 && d < now:
		return math.MaxInt64
	case a.since > 0 && d > now:
		return math.MinInt64
	}
	return time.Duration(d)
}

// nanoseconds returns the time in nanoseconds since 1970, or the nearest that there are: a client's
// time can be before 1678 or after 2262.
func nanoseconds(t time.Time) int64 {
	switch s := t.Unix(); {
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Len is about how many bytes the row holds.
func (r *Row) Len() int {
	const ageBytes = 16
	return cap(r.text) + ageBytes*cap(r.ages)
}

// Compact frees the unused capacity of a row that is complete.
func (r *Row) Compact() {
	if cap(r.text) > len(r.text)+len(r.text)/4 {
		r.text = append(make([]byte, 0, len(r.text)), r.text...)
	}
}

func (r *Row) begin() {
	if len(r.text) > 0 {
		r.text = append(r.text, ',')
	}
}

// String adds a string.
func (r *Row) String(s string) {
	r.begin()
	r.text = append(r.text, '"')
	r.text = appendEscaped(r.text, s)
	r.text = append(r.text, '"')
}

// Or adds s, or otherwise if s is empty.
func (r *Row) Or(s, otherwise string) {
	if s == "" {
		s = otherwise
	}
	r.String(s)
}

// Int adds an integer.
func (r *Row) Int(n int64) {
	r.begin()
	r.text = strconv.AppendInt(r.text, n, 10)
}

// Number adds a number, or null if JSON cannot represent it.
func (r *Row) Number(n float64) {
	b, err := json.Marshal(n)
	if err != nil {
		r.Null()
		return
	}
	r.begin()
	r.text = append(r.text, b...)
}

// Null adds null.
func (r *Row) Null() {
	r.begin()
	r.text = append(r.text, "null"...)
}

// Bool adds a boolean.
func (r *Row) Bool(b bool) {
	r.begin()
	r.text = strconv.AppendBool(r.text, b)
}

// Age adds the time since t: "5m12s", or "<unknown>" for the zero time.
func (r *Row) Age(t time.Time) { r.AgeIn("", t, "") }

// AgeIn adds an age between two texts.
func (r *Row) AgeIn(before string, t time.Time, after string) {
	if t.IsZero() {
		r.String(before + "<unknown>" + after)
		return
	}
	r.begin()
	r.text = append(r.text, '"')
	r.text = appendEscaped(r.text, before)
	r.ages = append(r.ages, age{offset: len(r.text), since: nanoseconds(t)})
	r.text = appendEscaped(r.text, after)
	r.text = append(r.text, '"')
}

// Conditions sets the conditions of the row.
func (r *Row) Conditions(c []metav1.TableRowCondition) {
	b, err := json.Marshal(c)
	if err != nil { // plain data
		panic(err)
	}
	r.conditions = string(b)
}

// Append appends the members "cells" and, if there are any, "conditions" to JSON, with ages
// at the time now.
func (r *Row) Append(to []byte, now time.Time) []byte {
	to = append(to, `"cells":[`...)
	done, at := 0, now.UnixNano()
	for i := range r.ages {
		a := &r.ages[i]
		to = append(to, r.text[done:a.offset]...)
		to = appendAge(to, a.at(at))
		done = a.offset
	}
	to = append(to, r.text[done:]...)
	to = append(to, ']')
	if r.conditions != "" {
		to = append(to, `,"conditions":`...)
		to = append(to, r.conditions...)
	}
	return to
}

// ageSeed is a constant of the process, so that all rows are hashed alike.
var ageSeed = maphash.MakeSeed()

// lasting is the least age that is shown in full hours, days or years.
const lasting = 8 * hour * time.Second

// Moment returns a hash of the ages as Append shows them at the time now. If lasts is true,
// most of an hour will pass before it changes.
func (r *Row) Moment(now time.Time) (moment uint64, lasts bool) {
	var room [64]byte
	text, at := room[:0], now.UnixNano()
	lasts = true
	for i := range r.ages {
		age := r.ages[i].at(at)
		text = append(appendAge(text, age), ' ')
		lasts = lasts && age > lasting
	}
	return maphash.Bytes(ageSeed, text), lasts
}

// appendEscaped appends a string as encoding/json writes it between quotes.
func appendEscaped(to []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			b, err := json.Marshal(s)
			if err != nil { // a string cannot fail
				panic(err)
			}
			return append(to, b[1:len(b)-1]...)
		}
	}
	return append(to, s...)
}

// appendAge appends a duration in its largest unit, or in two units for the ranges that ageScale marks.
func appendAge(to []byte, d time.Duration) []byte {
	seconds := int64(d / time.Second)
	switch {
	case seconds < -1:
		return append(to, `\u003cinvalid\u003e`...)
	case seconds <= 0:
		return append(to, "0s"...)
	}
	for _, s := range ageScale {
		if seconds >= s.below {
			continue
		}
		to = strconv.AppendInt(to, seconds/s.unit, 10)
		to = append(to, s.name)
		if rest := seconds % s.unit / max(s.part, 1); s.part > 0 && rest > 0 {
			to = strconv.AppendInt(to, rest, 10)
			to = append(to, s.partName)
		}
		return to
	}
	return append(strconv.AppendInt(to, seconds/year, 10), 'y')
}

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
	year   = 365 * day
)

// ageScale has the units of ages, shortest ages first. All numbers are seconds.
var ageScale = []struct {
	below    int64 // the row is for ages below
	unit     int64
	name     byte
	part     int64 // the smaller unit; zero: none
	partName byte
}{
	{below: 2 * minute, unit: 1, name: 's'},
	{below: 10 * minute, unit: minute, name: 'm', part: 1, partName: 's'},
	{below: 3 * hour, unit: minute, name: 'm'},
	{below: 8 * hour, unit: hour, name: 'h', part: minute, partName: 'm'},
	{below: 2 * day, unit: hour, name: 'h'},
	{below: 8 * day, unit: day, name: 'd', part: hour, partName: 'h'},
	{below: 2 * year, unit: day, name: 'd'},
	{below: 8 * year, unit: year, name: 'y', part: day, partName: 'd'},
}
