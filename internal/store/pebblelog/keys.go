package pebblelog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// The first byte of a key is its space, one of six.
const (
	spaceActor    = 'a'
	spaceCurrent  = 'c'
	spaceReplaced = 'h'
	spaceMark     = 'm'
	spaceHeader   = 'r'
	spaceHead     = 's'
)

// A place is a collection and a key, each ended by a zero byte, which neither
// may contain. So no place is a prefix of another one, and the order of places
// is the order of collections, then of keys, by their bytes.

// checkPlace refuses a collection or a key that cannot be part of a place.
func checkPlace(collection, key string) error {
	switch {
	case collection == "":
		return fmt.Errorf("an entry without a collection (key %q)", key)
	case key == "":
		return fmt.Errorf("an entry without a key (collection %q)", collection)
	case strings.IndexByte(collection, 0) >= 0, strings.IndexByte(key, 0) >= 0:
		return fmt.Errorf("a zero byte in collection %q or key %q", collection, key)
	}
	return nil
}

func appendPlace(b []byte, collection, key string) []byte {
	b = append(b, collection...)
	b = append(b, 0)
	b = append(b, key...)
	return append(b, 0)
}

// cutPlace reads the place at the front of b. It returns the collection, the key and the
// rest of b.
func cutPlace(b []byte) (collection, key, rest []byte, ok bool) {
	i := bytes.IndexByte(b, 0)
	if i <= 0 {
		return nil, nil, nil, false
	}
	j := bytes.IndexByte(b[i+1:], 0)
	if j <= 0 {
		return nil, nil, nil, false
	}
	j += i + 1
	return b[:i], b[i+1 : j], b[j+1:], true
}

func appendCurrentKey(b []byte, collection, key string) []byte {
	return appendPlace(append(b, spaceCurrent), collection, key)
}

func appendReplacedKey(b []byte, collection, key string, modified store.Revision) []byte {
	return appendVersion(appendPlace(append(b, spaceReplaced), collection, key), modified)
}

// appendVersion ends the key of a replaced version, which begins with its space and its place.
func appendVersion(b []byte, modified store.Revision) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(modified))
}

// cutReplacedKey splits a key of the space of replaced versions.
func cutReplacedKey(k []byte) (place []byte, modified store.Revision, ok bool) {
	if len(k) < 1+4+8 || k[0] != spaceReplaced {
		return nil, 0, false
	}
	place = k[1 : len(k)-8]
	if _, _, rest, ok := cutPlace(place); !ok || len(rest) != 0 {
		return nil, 0, false
	}
	return place, store.Revision(binary.BigEndian.Uint64(k[len(k)-8:])), true
}

func appendHeaderKey(b []byte, r store.Revision) []byte {
	return binary.BigEndian.AppendUint64(append(b, spaceHeader), uint64(r))
}

func appendMarkKey(b []byte, r store.Revision) []byte {
	return binary.BigEndian.AppendUint64(append(b, spaceMark), uint64(r))
}

func appendActorKey(b []byte, r store.Revision) []byte {
	return binary.BigEndian.AppendUint64(append(b, spaceActor), uint64(r))
}

const actorKeySize = 1 + 8

// cutRevisionKey reads a key that is a space and a revision.
func cutRevisionKey(space byte, k []byte) (store.Revision, bool) {
	if len(k) != 9 || k[0] != space {
		return 0, false
	}
	return store.Revision(binary.BigEndian.Uint64(k[1:])), true
}

var headKey = []byte{spaceHead}

// spaceBounds are the bounds of a whole space.
func spaceBounds(space byte) (lower, upper []byte) {
	return []byte{space}, []byte{space + 1}
}

// scanBounds are the bounds, within a space of versions, of the keys of a
// collection that have the prefix and are greater than after. If ok is false there can be
// none.
func scanBounds(space byte, collection, prefix, after string) (lower, upper []byte, ok bool) {
	if strings.IndexByte(prefix, 0) >= 0 || strings.IndexByte(collection, 0) >= 0 {
		return nil, nil, false
	}
	base := append([]byte{space}, collection...)
	base = append(base, 0)

	lower = append(bytes.Clone(base), prefix...)
	upper = successor(lower)
	if after != "" {
		// Keys hold no zero byte: those greater than "a\x00b" are those greater than
		// "a". A key that extends after continues with 0x01 or more. After itself continues
		// with the zero byte that ends it, and is excluded.
		if i := strings.IndexByte(after, 0); i >= 0 {
			after = after[:i]
		}
		from := append(append(base, after...), 1)
		if bytes.Compare(from, lower) > 0 {
			lower = from
		}
	}
	return lower, upper, bytes.Compare(lower, upper) < 0
}

// successor is the least key greater than all keys that begin with b. It exists because
// every space is below 0xff.
func successor(b []byte) []byte {
	s := bytes.Clone(b)
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0xff {
			s[i]++
			return s[:i+1]
		}
	}
	return []byte{0xff}
}
