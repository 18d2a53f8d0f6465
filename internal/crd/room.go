package crd

import (
	"fmt"
	"sync"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// versionBytes estimates the bytes that a version without its schema adds to an OpenAPI document:
// 38 KB for its paths, and 7 KB for each subresource.
const versionBytes = 48 << 10

// documentBytes estimates the bytes that versions add to an OpenAPI document. Versions that are not
// served count, too: they have types and schemas.
func documentBytes(versions []versionHead) (n int64) {
	for i := range versions {
		n += versionBytes + versions[i].Schema.to - versions[i].Schema.from
	}
	return n
}

// room limits the bytes that all definitions add to an OpenAPI document. The limit of one
// definition is 100 versions, in some 13 KB; 500 of these made a document of 2 GB, which took 2 MB
// of memory for each in each of its representations.
type room struct {
	most int64 // 0: there is no limit

	mu       sync.Mutex
	reserved int64 // for writes that are not stored yet
}

// Reserve reserves room for a definition that is about to be stored, in its stored form. It fails if all definitions
// together, with 48 KiB and the length of the schema for each version, would exceed the limit. A definition that does
// not grow always has room, as stored definitions have. The caller must call release when the definition is stored, or not
// stored.
func (n *Naming) Reserve(key string, value []byte) (release func(), err error) {
	release = func() {}
	if n.room.most == 0 {
		return release, nil
	}
	var next struct {
		Spec struct {
			Versions []versionHead `json:"versions"`
		} `json:"spec"`
	}
	if err := fastjson.Unmarshal(value, &next, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	n.room.mu.Lock()
	defer n.room.mu.Unlock()
	now := n.set.now()
	more := documentBytes(next.Spec.Versions) - now.entry(key).size()
	if more <= 0 {
		return release, nil
	}
	if now.bytes+n.room.reserved+more > n.room.most {
		return nil, fmt.Errorf("all definitions together would have %d bytes, and the limit is %d: each version counts %d and the length of its schema. "+
			"Delete definitions, or remove versions of them; updates that do not grow a definition go on", now.bytes+n.room.reserved+more, n.room.most, versionBytes)
	}
	n.room.reserved += more
	return func() {
		n.room.mu.Lock()
		defer n.room.mu.Unlock()
		n.room.reserved -= more
	}, nil
}
