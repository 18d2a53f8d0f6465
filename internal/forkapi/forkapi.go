// Package forkapi has the requests and responses with which clients list, create and delete the forks of a
// server.
package forkapi

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Path is the path of forks: GET and POST, and GET and DELETE of Path/NAME.
const Path = "/forks"

// Request is the body of a POST.
type Request struct {
	// Name is the name of the fork, a DNS label; empty: the server makes one.
	Name string `json:"name,omitempty"`
	// From is the fork to fork; empty: the server's own state.
	From string `json:"from,omitempty"`
	// ResourceVersion is the state to begin with; empty: the newest.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Controllers selects the controllers, as the flag --controllers does; empty: those of the server.
	Controllers []string `json:"controllers,omitempty"`
	// Keep keeps the fork in the data directory of the server.
	Keep bool `json:"keep,omitempty"`
	// KubernetesVersion is the minor version of Kubernetes of the fork, such as "1.36"; empty: that of the state.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
}

// Fork describes a fork.
type Fork struct {
	Name string `json:"name"`
	// Parent is the fork that it was forked from; empty: the server's own state.
	Parent string `json:"parent,omitempty"`
	// URL is the address as the server knows it. Path is the path below any address of the server.
	URL  string `json:"url"`
	Path string `json:"path"`
	// Created is the time of the fork, Base the resource version that it began with.
	Created metav1.Time `json:"created"`
	Base    string      `json:"base"`
	// BaseTime is when the change with the resource version Base was made; zero: it is not known.
	BaseTime time.Time `json:"baseTime,omitzero"`
	// ResourceVersion is the newest one; empty: it is not known, because the fork is kept and no request has opened
	// it yet.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Bytes is the approximate memory of the fork in addition to the part that it shares with its
	// parent.
	Bytes int64 `json:"bytes"`
	// Kept: the fork is kept in the data directory of the server.
	Kept bool `json:"kept,omitempty"`
	// Error is why the kept fork could not be opened; empty: it could, or no request has tried it.
	Error string `json:"error,omitempty"`
}

// List is the response to a GET of Path.
type List struct {
	Forks []Fork `json:"forks"`
}
