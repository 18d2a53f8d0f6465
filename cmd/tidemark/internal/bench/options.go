package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options say what to measure, and how long. The zero value of a number means its
// default, which Defaults shows; Run checks the limits.
type Options struct {
	// Scenarios are names as Scenarios lists them; empty: all.
	Scenarios []string `json:"scenarios"`
	// Rounds is how often each scenario is measured, 1 to 100.
	Rounds int `json:"rounds"`
	// Duration bounds a measured round, 1 ms to 10 min. An operation that has begun
	// is finished and counted.
	Duration time.Duration `json:"durationNanos"`
	// Objects is the number of pods that are read and listed, 1 to 1,000,000.
	Objects int `json:"objects"`
	// Watchers caps the watchers of every scenario, up to 20,000; zero: as many as
	// the scenario's name says.
	Watchers int `json:"watchers,omitempty"`
	// WatchesPerConnection is how many watches of events share an HTTP/2 connection, 1 to
	// 90, which is below the 100 streams that kube-apiserver allows; 1 is a client for
	// each, as kubelets are. The scenario idle-watch has numbers of its own.
	WatchesPerConnection int `json:"watchesPerConnection,omitempty"`
	// Clients replaces the number of clients of the scenarios with requests, up to
	// 1,024; zero: as each scenario says.
	Clients int `json:"clients,omitempty"`
	// Definitions is the number of definitions of custom resources that are applied, or
	// that one more is made beside, 1 to 5,000.
	Definitions int `json:"definitions,omitempty"`
	// Connections is the number of HTTP/2 connections that clients share, 1 to 256.
	Connections int `json:"connections"`
	// Rate makes the loops of single requests open: so many a second, up to
	// 1,000,000. Zero: closed loops.
	Rate float64 `json:"rate,omitempty"`
	// MaxOps bounds the operations of a round, 1 to 10,000,000.
	MaxOps int64 `json:"maxOps"`
	// Seed makes the same objects again; their namespaces have a random name anyway.
	Seed uint64 `json:"seed"`
	// EqualBytes makes the pods of the server that serves fewer bytes for them larger,
	// and its ConfigMaps and Deployments, until both serve the same. It needs two
	// servers.
	EqualBytes bool `json:"equalBytes,omitempty"`
	// Keep leaves what was made.
	Keep bool `json:"keep,omitempty"`
}

const (
	maxRounds      = 100
	maxDuration    = 10 * time.Minute
	maxObjects     = 1_000_000
	maxWatchers    = 20_000
	maxClients     = 1024
	maxStreams     = 90
	maxConnections = 256
	maxDefinitions = 5000
	maxRate        = 1e6
	maxMaxOps      = 10_000_000
	// maxPad keeps a pod below the 1.5 MiB that etcd takes.
	maxPad = 1 << 20
)

// Defaults are the options that zero values stand for.
func Defaults() Options {
	return Options{Rounds: 3, Duration: 3 * time.Second, Objects: 1000, Definitions: 100, Connections: 4, WatchesPerConnection: maxStreams, MaxOps: 200_000, Seed: 1}
}

// withDefaults fills in what was left zero.
func (o Options) withDefaults() Options {
	d := Defaults()
	fill := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	fill(&o.Rounds, d.Rounds)
	fill(&o.Objects, d.Objects)
	fill(&o.Definitions, d.Definitions)
	fill(&o.Connections, d.Connections)
	fill(&o.WatchesPerConnection, d.WatchesPerConnection)
	if o.Duration == 0 {
		o.Duration = d.Duration
	}
	if o.MaxOps == 0 {
		o.MaxOps = d.MaxOps
	}
	if o.Seed == 0 {
		o.Seed = d.Seed
	}
	return o
}

// Check says what is out of bounds, and what would be right. It takes zero for a
// default.
func (o Options) Check() error {
	o = o.withDefaults()
	var errs []error
	within := func(name string, got, low, high int64) {
		if got < low || got > high {
			errs = append(errs, fmt.Errorf("%s is %d: want %d to %d", name, got, low, high))
		}
	}
	within("rounds", int64(o.Rounds), 1, maxRounds)
	within("objects", int64(o.Objects), 1, maxObjects)
	within("watchers", int64(o.Watchers), 0, maxWatchers)
	within("watches-per-connection", int64(o.WatchesPerConnection), 1, maxStreams)
	within("clients", int64(o.Clients), 0, maxClients)
	within("definitions", int64(o.Definitions), 1, maxDefinitions)
	within("connections", int64(o.Connections), 1, maxConnections)
	within("max-ops", o.MaxOps, 1, maxMaxOps)
	if o.Duration < time.Millisecond || o.Duration > maxDuration {
		errs = append(errs, fmt.Errorf("duration is %v: want 1ms to %v", o.Duration, maxDuration))
	}
	if !(o.Rate >= 0 && o.Rate <= maxRate) {
		errs = append(errs, fmt.Errorf("rate is %v: want up to %.0f a second, or 0 for closed loops", o.Rate, maxRate))
	}
	for _, name := range o.Scenarios {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name }) {
			errs = append(errs, fmt.Errorf("there is no scenario %q: want some of %s", name, strings.Join(names(), ", ")))
		}
	}
	return errors.Join(errs...)
}

// Server is one server to measure.
type Server struct {
	// Kubeconfig is a file; empty: as kubectl finds it.
	Kubeconfig string `json:"-"`
	// Context is one of the file; empty: its current one.
	Context string `json:"context,omitempty"`
	// PIDs are the processes that make up the server, on this machine; empty: its CPU
	// and memory are not measured.
	PIDs []int `json:"pids,omitempty"`
	// Pad makes each pod so many bytes larger as it is sent, up to 1 MiB.
	Pad int `json:"pad,omitempty"`
	// StartCommand is a line of shell that starts the server in the foreground; it is
	// for the scenario start, which is skipped when it is empty.
	StartCommand string `json:"startCommand,omitempty"`
}

func (s Server) check() error {
	if s.Pad < 0 || s.Pad > maxPad {
		return fmt.Errorf("pad is %d: want 0 to %d bytes", s.Pad, maxPad)
	}
	for _, pid := range s.PIDs {
		if pid < 1 {
			return fmt.Errorf("%d is no process id", pid)
		}
	}
	return nil
}
