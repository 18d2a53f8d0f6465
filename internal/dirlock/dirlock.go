// Package dirlock locks the directories of servers: one process at a time uses a directory.
package dirlock

import "errors"

// File is the name of the file of the lock in a directory.
const File = "LOCK"

// ErrInUse is wrapped by errors about a directory that another server uses.
var ErrInUse = errors.New("the data directory is in use")

// ErrLost is wrapped by errors about a lock that no longer guards its directory.
var ErrLost = errors.New("the data directory was moved, removed or replaced while the server used it")
