package world

import (
	"errors"
	"fmt"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// MaxKeptForks is how many forks a server keeps. Each has a log of its own, with files and memory.
const MaxKeptForks = 16

// Errors of forks, as those of package tidemark.
var (
	ErrForkExists   = errors.New("a fork with this name exists")
	ErrTooManyForks = errors.New("there are as many forks as the server may have")
	ErrForkMemory   = errors.New("there is no memory for the fork")
	ErrForkHistory  = store.ErrTooMuchHistory
	ErrForkNotKept  = errors.New("the fork cannot be kept: the server has no data directory of its own: its objects are in memory only, in etcd, or a copy of those of another server")
	ErrTooManyKept  = fmt.Errorf("there are %d kept forks, which is as many as a server may have: delete one", MaxKeptForks)
	ErrNoFork       = errors.New("there is no fork with this name")
	ErrForkClosed   = errors.New("the world was closed")
)

// MaxReplicas is how many replicas a world may have at a time.
const MaxReplicas = 16

// Errors of World.Replica, as those of package tidemark.
var (
	ErrReplicaExists   = errors.New("a replica with this name exists")
	ErrNoResource      = errors.New("the server has no resource")
	ErrTooManyReplicas = fmt.Errorf("the world has %d replicas, as many as it may have", MaxReplicas)
)

// errKeptBusy is returned if keptWaiting requests wait for kept forks to be opened.
var errKeptBusy = errors.New("too many requests wait for kept forks to be opened, please try again later")

// errForkLog is returned if the storage failed to make or remove a kept fork.
var errForkLog = errors.New("the storage of the fork")
