package pebblelog

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// A DamageError reports where the log differs from the written bytes. None of the log is
// served: the file has to be restored from elsewhere.
type DamageError struct {
	// File is a path; Place is the position in the file, in words.
	File, Place string
	// Err is the fault.
	Err error
}

func (e *DamageError) Error() string {
	text := fmt.Sprintf("%s is damaged at %s: %s", e.File, e.Place, firstLine(e.Err))
	if !strings.Contains(text, restoreHint) {
		text += restoreHint
	}
	return text
}

// restoreHint is the next step after damage. See docs/how-to/repair.md.
const restoreHint = "; restore the file or a backup of the whole directory"

// firstLine is the first line of an error of Pebble's, which says all.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func (e *DamageError) Unwrap() error { return e.Err }

// damaged returns the error for a wrong record, or for a read of Pebble's that failed.
func (l *Log) damaged(place string, err error) error {
	var d *DamageError
	if errors.As(err, &d) {
		return err
	}
	return l.blame(place, err)
}

// tableNumber finds the table in an error of Pebble's.
var tableNumber = regexp.MustCompile(`(?:table|file) ([0-9]{6,})`)

// blame turns an error of Pebble's into one that names the file, if it is known.
func (l *Log) blame(place string, err error) *DamageError {
	d := &DamageError{File: l.pebbleDir(), Place: place, Err: err}
	join := func(name string) string { return l.o.FS.PathJoin(l.pebbleDir(), name) }
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil && info.Path != "" {
		d.File = join(l.o.FS.PathBase(info.Path))
		return d
	}
	if m := tableNumber.FindStringSubmatch(err.Error()); m != nil && !strings.Contains(err.Error(), m[1]+".log") {
		d.File = join(m[1] + ".sst")
		return d
	}
	names, listErr := l.o.FS.List(l.pebbleDir())
	if listErr != nil {
		return d
	}
	if strings.Contains(err.Error(), "replaying WAL") { // Pebble does not say which one
		logs := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, ".log") })
		slices.Sort(logs)
		d.Place = "one of its write-ahead logs, " + strings.Join(logs, ", ")
		return d
	}
	for _, kind := range []string{"marker.manifest", "marker.format-version", "MANIFEST"} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, kind) }) {
			d.File, d.Err = join(kind+"*"), fmt.Errorf("the file is missing: %w", err)
			return d
		}
	}
	if name := l.badOptions(names); name != "" {
		d.File = join(name)
	}
	return d
}

// badOptions returns the newest of Pebble's files of options if it cannot be read, empty
// if it can.
func (l *Log) badOptions(names []string) string {
	newest := ""
	for _, n := range names {
		if strings.HasPrefix(n, "OPTIONS-") {
			newest = max(newest, n)
		}
	}
	if newest == "" {
		return ""
	}
	f, err := l.o.FS.Open(l.o.FS.PathJoin(l.pebbleDir(), newest))
	if err != nil {
		return newest
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return newest
	}
	o := new(pebble.Options)
	o.EnsureDefaults()
	if o.CheckCompatibility(l.pebbleDir(), string(b)) != nil {
		return newest
	}
	return ""
}
