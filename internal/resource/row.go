package resource

import (
	"encoding/json"
	"hash/maphash"
	"strconv"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Row is the cells of one object in a table. What depends on the time of the
// request is left open, so that a row is made once and used often. The zero value
// is a row without cells. While it is written it belongs to one goroutine; then it
// is immutable.
type Row struct {
	text       []byte // the cells as JSON, with commas between them
	open       []open // in the order of their places
	conditions string // as JSON; empty: none
}

// open is a place in the text where an age stands.
type open struct {
	at    int
	since int64 // nanoseconds since 1970
}

// Len is about how many bytes the row holds.
func (r *Row) Len() int {
	const openBytes = 24
	return cap(r.text) + openBytes*cap(r.open)
}

// Compact gives back what is not used of the memory of a row that is written.
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

// String adds a cell.
func (r *Row) String(s string) {
	r.begin()
	r.text = append(r.text, '"')
	r.text = appendEscaped(r.text, s)
	r.text = append(r.text, '"')
}

// Or adds a cell with a string, or with another one when it is empty.
func (r *Row) Or(s, otherwise string) {
	if s == "" {
		s = otherwise
	}
	r.String(s)
}

// Int adds a cell with a number.
func (r *Row) Int(n int64) {
	r.begin()
	r.text = strconv.AppendInt(r.text, n, 10)
}

// Number adds a cell with a number, which need not be whole.
func (r *Row) Number(n float64) {
	b, err := json.Marshal(n)
	if err != nil { // not in JSON
		r.Null()
		return
	}
	r.begin()
	r.text = append(r.text, b...)
}

// Null adds a cell with nothing.
func (r *Row) Null() {
	r.begin()
	r.text = append(r.text, "null"...)
}

// Bool adds a cell with true or false.
func (r *Row) Bool(b bool) {
	r.begin()
	r.text = strconv.AppendBool(r.text, b)
}

// Age adds a cell that tells how long ago a time was: "5m12s", or "<unknown>" for
// the zero time.
func (r *Row) Age(t time.Time) { r.AgeIn("", t, "") }

// AgeIn adds a cell in which an age stands between two texts.
func (r *Row) AgeIn(before string, t time.Time, after string) {
	if t.IsZero() {
		r.String(before + "<unknown>" + after)
		return
	}
	r.begin()
	r.text = append(r.text, '"')
	r.text = appendEscaped(r.text, before)
	r.open = append(r.open, open{at: len(r.text), since: t.UnixNano()})
	r.text = appendEscaped(r.text, after)
	r.text = append(r.text, '"')
}

// Conditions sets those of the row.
func (r *Row) Conditions(c []metav1.TableRowCondition) {
	b, err := json.Marshal(c)
	if err != nil { // plain data
		panic(err)
	}
	r.conditions = string(b)
}

// Append appends the members "cells" and, when there are some, "conditions" of a
// row as of a moment, without braces.
func (r *Row) Append(to []byte, now time.Time) []byte {
	to = append(to, `"cells":[`...)
	done, at := 0, now.UnixNano()
	for i := range r.open {
		o := &r.open[i]
		to = append(to, r.text[done:o.at]...)
		to = appendAge(to, time.Duration(at-o.since))
		done = o.at
	}
	to = append(to, r.text[done:]...)
	to = append(to, ']')
	if r.conditions != "" {
		to = append(to, `,"conditions":`...)
		to = append(to, r.conditions...)
	}
	return to
}

var ageSeed = maphash.MakeSeed()

// lasting is from when on an age is shown in hours or more.
const lasting = 8 * hour * time.Second

// Moment is the same for two moments at which Append appends the same, and nearly
// never for others. Lasting: that will be so for the better part of an hour.
func (r *Row) Moment(now time.Time) (moment uint64, lasts bool) {
	var room [64]byte
	text, at := room[:0], now.UnixNano()
	lasts = true
	for i := range r.open {
		age := time.Duration(at - r.open[i].since)
		text = append(appendAge(text, age), ' ')
		lasts = lasts && age > lasting
	}
	return maphash.Bytes(ageSeed, text), lasts
}

// appendEscaped appends what stands between the quotes of a string in JSON, as
// encoding/json writes it.
func appendEscaped(to []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			b, err := json.Marshal(s)
			if err != nil { // a string
				panic(err)
			}
			return append(to, b[1:len(b)-1]...)
		}
	}
	return append(to, s...)
}

// appendAge appends a duration in the few digits that people want: of its two
// largest units as long as both count, else of the largest.
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

// ageScale is the units that are told, by the seconds below which they are.
var ageScale = []struct {
	below    int64
	unit     int64
	name     byte
	part     int64 // zero: the unit alone
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
