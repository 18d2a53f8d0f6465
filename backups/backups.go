// Package backups keeps the backups that a server makes on a schedule: in a folder, or in whatever else implements Place.
// Package backups/s3 has buckets.
package backups

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Place keeps backups under names. A server uses it alone. Its methods are called by one goroutine at a time, first Open,
// and last Close if Open succeeded.
type Place interface {
	// Open checks the configuration, and takes the place. It makes no long calls.
	Open(ctx context.Context) error
	// Store keeps what write writes under a name that is not in use. The backup appears under the name when write and
	// verify have succeeded, whole and durable; verify reads what is kept. After an error, and if the process ends before,
	// nothing has the name. It returns the size in bytes. It first removes what calls that were cut off have left.
	Store(ctx context.Context, name string, write func(io.Writer) error, verify func(io.Reader) error) (int64, error)
	// List returns everything in the place, in any order. Names that ParseName refuses are not those of backups.
	List(ctx context.Context) ([]File, error)
	// Remove removes a backup.
	Remove(ctx context.Context, name string) error
	// Close gives the place up.
	Close() error
	// String names the place, as in an error.
	String() string
}

// File is a backup in a Place.
type File struct {
	Name  string
	Bytes int64
}

const (
	namePrefix, nameSuffix = "tidemark-", ".tar"
	nameTime               = "20060102T150405Z"
)

// Name returns the name of a backup that begins at a time: tidemark-20261129T180000Z.tar.
func Name(at time.Time) string { return namePrefix + at.UTC().Format(nameTime) + nameSuffix }

// ParseName returns the time of a name that Name has made. Other names are errors.
func ParseName(name string) (time.Time, error) {
	middle, ok := strings.CutPrefix(name, namePrefix)
	middle, suffix := strings.CutSuffix(middle, nameSuffix)
	at, err := time.Parse(nameTime, middle)
	if !ok || !suffix || err != nil {
		return time.Time{}, fmt.Errorf("%q is not the name of a backup", name)
	}
	return at, nil
}
