// Package statusapi has the response with which a server describes itself.
package statusapi

import (
	"time"

	"github.com/tidemark-dev/tidemark/internal/forkapi"
)

// Path is the path of the status, for GET.
const Path = "/status"

// The roles of a server.
const (
	// Single is a server with objects of its own. Stopped is a data directory that no server uses.
	Single, Stopped = "single", "stopped"
	// Leader is the server whose controllers run, among those on one etcd. The others are Standby.
	Leader, Standby = "leader", "standby"
	// Follower copies the objects of another server.
	Follower = "follower"
)

// Status describes a server. Fields that are zero are not known, or do not apply.
type Status struct {
	Role string `json:"role"`
	// Addresses are URLs at which the server listens; "unix:" and a path is a socket.
	Addresses []string `json:"addresses,omitempty"`
	// Version is that of Tidemark, Kubernetes that of the API.
	Version    string    `json:"version,omitempty"`
	Kubernetes string    `json:"kubernetes,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	Started    time.Time `json:"started,omitzero"`

	Objects Objects  `json:"objects"`
	History History  `json:"history"`
	Storage Storage  `json:"storage"`
	Follows *Follows `json:"follows,omitempty"`
	// MovedTo is where the objects of a stopped directory were moved to. Servers refuse the directory.
	MovedTo string   `json:"movedTo,omitempty"`
	Servers []Server `json:"servers,omitempty"`
	Backups *Backups `json:"backups,omitempty"`
	Forks   []Fork   `json:"forks"`
}

// Fork is a fork of the server.
type Fork = forkapi.Fork

// Objects counts the current objects, without those of forks.
type Objects struct {
	Count int `json:"count"`
	// Resources is how many resources have objects.
	Resources int `json:"resources,omitempty"`
	// MemoryBytes is about the memory that they take, and LimitBytes what they may take.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	LimitBytes  int64 `json:"limitBytes,omitempty"`
}

// History is the span of the resource versions that can be read.
type History struct {
	Oldest Revision `json:"oldest"`
	Newest Revision `json:"newest"`
	// RetentionSeconds is for how long a replaced state stays readable if there is space.
	RetentionSeconds float64 `json:"retentionSeconds,omitempty"`
}

// Revision is a resource version, and when it was made: of the oldest one, when the change after it was made.
type Revision struct {
	ResourceVersion uint64    `json:"resourceVersion"`
	Time            time.Time `json:"time,omitzero"`
}

// The kinds of storage.
const (
	Memory, Directory, Etcd = "memory", "directory", "etcd"
)

// Storage is where the objects are.
type Storage struct {
	Kind string `json:"kind"`
	// Path is the data directory.
	Path string `json:"path,omitempty"`
	// LogBytes is the size of the log, or of etcd's database, and LimitBytes the quota of that.
	LogBytes   int64 `json:"logBytes,omitempty"`
	LimitBytes int64 `json:"limitBytes,omitempty"`
	// FreeBytes is the free space of the file system, or in the quota. Below NeededBytes, writes are refused.
	FreeBytes   int64 `json:"freeBytes,omitempty"`
	NeededBytes int64 `json:"neededBytes,omitempty"`
	// Members are those of etcd that the server uses.
	Members []Member `json:"members,omitempty"`
}

// Member is a member of etcd.
type Member struct {
	URL string `json:"url"`
	// Version is that of etcd. Leader: it leads the cluster. Bytes is the size of its database.
	Version string `json:"version,omitempty"`
	Leader  bool   `json:"leader,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
	// Error is why nothing is known, or what the member reports.
	Error string `json:"error,omitempty"`
}

// Follows is how far a follower is behind.
type Follows struct {
	URL          string  `json:"url"`
	Connected    bool    `json:"connected"`
	LagSeconds   float64 `json:"lagSeconds"`
	LagRevisions uint64  `json:"lagRevisions"`
}

// Server is one of the servers on one etcd.
type Server struct {
	Identity string `json:"identity"`
	// Address is where clients reach it: IP:port.
	Address string `json:"address,omitempty"`
	// Self: it is the server that describes itself. Leader: its controllers run.
	Self   bool `json:"self,omitempty"`
	Leader bool `json:"leader,omitempty"`
	// Renewed is when it last showed that it lives.
	Renewed time.Time `json:"renewed,omitzero"`
}

// Backups are those of the schedule.
type Backups struct {
	Schedule string `json:"schedule"`
	Place    string `json:"place"`
	// Running: a backup is under way.
	Running bool      `json:"running,omitempty"`
	Next    time.Time `json:"next,omitzero"`
	// Last is the newest backup.
	Last *Backup `json:"last,omitempty"`
	// Kept and KeptBytes count the backups in the place.
	Kept      int   `json:"kept"`
	KeptBytes int64 `json:"keptBytes"`
	// Failure is what has failed since the last backup.
	Failure *Failure `json:"failure,omitempty"`
}

// Backup is one backup.
type Backup struct {
	Name  string    `json:"name"`
	Time  time.Time `json:"time"`
	Bytes int64     `json:"bytes"`
	// Seconds is how long it took; zero: an earlier process made it.
	Seconds float64 `json:"seconds,omitempty"`
}

// Failure is an error.
type Failure struct {
	Time  time.Time `json:"time"`
	Error string    `json:"error"`
}
