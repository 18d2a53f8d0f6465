package encryption

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// maxNamed bounds the objects that an *UnreadableError names.
const maxNamed = 10

// UnreadableError lists current objects that a configuration cannot decrypt.
type UnreadableError struct {
	// Config is the path of the configuration; empty: there is none.
	Config string
	// Count of the objects.
	Count int
	// First has some of them, ordered by path.
	First []*OpenError
	// With counts the objects by the provider and key that encrypted them.
	With map[string]int
}

func (e *UnreadableError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d stored objects cannot be read", e.Count)
	if e.Config != "" {
		fmt.Fprintf(&b, " with the encryption configuration %s", e.Config)
	} else {
		b.WriteString(" without an encryption configuration: start with --encryption-provider-config")
	}
	b.WriteString("; they are stored with ")
	for i, with := range slices.Sorted(maps.Keys(e.With)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%d)", with, e.With[with])
	}
	b.WriteString(": restore that key or provider, after the first one of the resource if new values get another key. Objects: ")
	for i, o := range e.First {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %v", shortPath(o.Path), o.Err)
	}
	if more := e.Count - len(e.First); more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// unreadable collects values that cannot be opened. It is safe for concurrent use.
type unreadable struct {
	mu   sync.Mutex
	made UnreadableError
}

func (u *unreadable) add(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.made.Count++
	var e *OpenError
	if !errors.As(err, &e) {
		return
	}
	if u.made.With == nil {
		u.made.With = map[string]int{}
	}
	if _, known := u.made.With[e.With]; known || len(u.made.With) < maxNamed {
		u.made.With[e.With]++
	}
	at, _ := slices.BinarySearchFunc(u.made.First, e, func(a, b *OpenError) int { return strings.Compare(a.Path, b.Path) })
	if at < maxNamed {
		u.made.First = slices.Insert(u.made.First, at, e)
		u.made.First = u.made.First[:min(len(u.made.First), maxNamed)]
	}
}

// err returns the error about the collected values, nil if there are none.
func (u *unreadable) err(s *Set) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.made.Count == 0 {
		return nil
	}
	e := u.made
	e.Config = s.path
	return &e
}
