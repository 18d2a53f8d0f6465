// Package dump reads the dumps of failed tests: the objects of a world at one revision, and the changes that led
// to them. docs/formats/dump.md describes the files.
package dump

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
)

// The files of a dump.
const (
	ObjectsFile = "objects.jsonl"
	HistoryFile = "history.jsonl"
)

// maxLineBytes limits a line: a change with the object before and after it.
const maxLineBytes = 64 << 20

// Is reports whether a directory has a dump.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ObjectsFile))
	return err == nil
}

// Dump is one state of a dump. It is the storage of a server that begins with the state and keeps all changes in
// memory.
type Dump struct {
	log      *memlog.Log
	revision uint64
}

// Open reads the state at a revision from a directory; zero: the newest. The error for a revision that the dump
// does not have names those that it has.
func Open(ctx context.Context, dir string, at uint64) (*Dump, error) {
	objects, newest, err := readObjects(ctx, filepath.Join(dir, ObjectsFile))
	if err != nil {
		return nil, err
	}
	if at == 0 {
		at = newest
	}
	oldest, err := undo(ctx, filepath.Join(dir, HistoryFile), objects, newest, at)
	if err != nil {
		return nil, err
	}
	if at < oldest || at > newest {
		return nil, fmt.Errorf("the state at resource version %d is not in %s, which has those from %d to %d", at, dir, oldest, newest)
	}
	all := map[string][]*store.Object{}
	for p, text := range objects {
		o, err := stored(p.Key, text)
		if err == nil && uint64(o.Modified) > at {
			err = fmt.Errorf("it has resource version %d", o.Modified)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s at resource version %d: %w", dir, p.Collection, p.Key, at, err)
		}
		all[p.Collection] = append(all[p.Collection], o)
	}
	return &Dump{memlog.At(store.Revision(at), all), at}, nil
}

// Revision returns the revision of the state.
func (d *Dump) Revision() uint64 { return d.revision }

// Open implements tidemark.Storage: the log begins with the state.
func (d *Dump) Open(context.Context, storage.Options) (*storage.Opened, error) {
	return &storage.Opened{Log: d.log}, nil
}

// place is where an object is stored.
type place struct {
	Collection string `json:"collection"`
	Key        string `json:"key"`
}

func (p place) check() error {
	if p.Collection == "" || p.Key == "" {
		return errors.New("it lacks a collection or a key")
	}
	return nil
}

// readObjects returns the objects of ObjectsFile, and their revision, which the first line has.
func readObjects(ctx context.Context, path string) (objects map[place]json.RawMessage, revision uint64, err error) {
	objects = map[place]json.RawMessage{}
	err = eachLine(ctx, path, func(text []byte) error {
		var line struct {
			place
			Revision uint64          `json:"revision"`
			Object   json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		if revision == 0 {
			if revision = line.Revision; revision == 0 {
				return errors.New("the first line has no revision")
			}
			return nil
		}
		if line.Object == nil {
			return errors.New("it lacks an object")
		}
		objects[line.place] = line.Object
		return line.check()
	})
	if err == nil && revision == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return objects, revision, err
}

// undo takes the objects of the newest revision back to an older one, by the changes of HistoryFile. It returns
// the oldest revision for which that is possible.
func undo(ctx context.Context, path string, objects map[place]json.RawMessage, newest, at uint64) (oldest uint64, err error) {
	oldest = newest
	last := uint64(0)
	undone := map[place]bool{}
	err = eachLine(ctx, path, func(text []byte) error {
		var line struct {
			place
			Revision uint64          `json:"revision"`
			Before   json.RawMessage `json:"before"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		if err := line.check(); err != nil {
			return err
		}
		if line.Revision <= last {
			return fmt.Errorf("the revision %d comes after %d", line.Revision, last)
		}
		if last == 0 && line.Revision <= newest {
			oldest = line.Revision - 1
		}
		last = line.Revision
		if line.Revision > newest || line.Revision <= at || undone[line.place] {
			return nil
		}
		undone[line.place] = true
		if line.Before == nil {
			delete(objects, line.place)
		} else {
			objects[line.place] = line.Before
		}
		return nil
	})
	return oldest, err
}

// eachLine calls f with each line of a file. Errors name the file and the line.
func eachLine(ctx context.Context, path string, f func(line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLineBytes)
	n := 0
	for lines.Scan() {
		n++
		if err := errors.Join(ctx.Err(), f(lines.Bytes())); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: line %d: %w", path, n+1, err)
	}
	return nil
}

// stored returns the object of a JSON text. The text does not have the revision that created it, so Created is that of
// the last change.
func stored(key string, text json.RawMessage) (*store.Object, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	at, revision, err := findRevision(compact.Bytes())
	if err != nil {
		return nil, err
	}
	return &store.Object{Key: key, Held: compact.Bytes(), Created: revision, Modified: revision, RevisionAt: int32(at)}, nil
}

// findRevision finds metadata.resourceVersion. It returns the offset of the digits, and the number.
func findRevision(object []byte) (at int, revision store.Revision, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	for _, member := range []string{"metadata", "resourceVersion"} {
		if err := enter(d, member); err != nil {
			return 0, 0, err
		}
	}
	token, err := d.Token()
	if err != nil {
		return 0, 0, err
	}
	digits, _ := token.(string)
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != digits || n == 0 {
		return 0, 0, fmt.Errorf("the resourceVersion %v is not a positive number", token)
	}
	at = int(d.InputOffset()) - 1 - len(digits)
	if object[at-1] != '"' {
		return 0, 0, errors.New("the resourceVersion has escaped characters")
	}
	return at, store.Revision(n), nil
}

// enter reads an object up to the value of a member.
func enter(d *json.Decoder, member string) error {
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return errors.Join(errors.New("it is not a JSON object"), err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name == member {
			return nil
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return err
		}
	}
	return fmt.Errorf("it has no %s", member)
}
