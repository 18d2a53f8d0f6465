package bench

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Options select the scenarios and their duration. A zero number means its default; see Defaults.
// Run checks the limits.
type Options struct {
	// Scenarios are names of scenarios; empty means all.
	Scenarios []string `json:"scenarios"`
	// Rounds is the number of measurements of each scenario, 1 to 100.
	Rounds int `json:"rounds"`
	// Duration is the length of a round, 1 ms to 10 min. Operations in flight at the end
	// are completed and counted.
	Duration time.Duration `json:"durationNanos"`
	// Objects is the number of pods to read and list, 1 to 1,000,000.
	Objects int `json:"objects"`
	// Watchers limits the watchers of each scenario, up to 20,000. Zero means the number
	// in the scenario's name.
	Watchers int `json:"watchers,omitempty"`
	// WatchesPerConnection is how many watches of events share an HTTP/2 connection, 1 to
	// 90, which is below the 100 streams that kube-apiserver allows; 1 is a client for
	// each, as kubelets are. The scenario idle-watch has numbers of its own.
	WatchesPerConnection int `json:"watchesPerConnection,omitempty"`
	// Clients replaces the scenarios' numbers of clients, up to 1,024. Zero keeps them.
	Clients int `json:"clients,omitempty"`
	// Definitions is the number of custom resource definitions in the crd scenarios, 1 to
	// 5,000.
	Definitions int `json:"definitions,omitempty"`
	// Connections is the number of HTTP/2 connections that clients share, 1 to 256.
	Connections int `json:"connections"`
	// Rate is the number of requests per second in open loops, up to 1,000,000. Zero means
	// closed loops.
	Rate float64 `json:"rate,omitempty"`
	// LinkMbit is how many megabits a second the clients that overload the server receive together, up
	// to 1,000,000, as if they were behind a link of that bandwidth. Zero does not limit them.
	LinkMbit int `json:"linkMbit,omitempty"`
	// MaxOps limits the operations of a round, 1 to 10,000,000.
	MaxOps int64 `json:"maxOps"`
	// Seed determines the generated objects, but not the names of their namespaces.
	Seed uint64 `json:"seed"`
	// EqualBytes pads pods, ConfigMaps and Deployments on one of two servers until both
	// serve the same number of bytes.
	EqualBytes bool `json:"equalBytes,omitempty"`
	// Keep leaves the created objects on the server.
	Keep bool `json:"keep,omitempty"`
	// Executable is the program that the scenario overload runs with the arguments "bench flood" for
	// its load, in a process of low priority; it must call Flood. If empty, the load comes from this
	// process, which delays the measured clients too.
	Executable string `json:"-"`
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
	maxLinkMbit    = 1_000_000
	maxMaxOps      = 10_000_000
	// maxPad keeps a pod below the 1.5 MiB that etcd accepts.
	maxPad = 1 << 20
)

// Defaults are the options that zero values stand for.
func Defaults() Options {
	return Options{Rounds: 3, Duration: 3 * time.Second, Objects: 1000, Definitions: 100, Connections: 4, WatchesPerConnection: maxStreams, MaxOps: 200_000, Seed: 1}
}

// withDefaults replaces zeros by the defaults.
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

// Check returns an error for options out of bounds, with the bounds. Zero means the
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
	within("link-mbit", int64(o.LinkMbit), 0, maxLinkMbit)
	within("max-ops", o.MaxOps, 1, maxMaxOps)
	if o.Duration < time.Millisecond || o.Duration > maxDuration {
		errs = append(errs, fmt.Errorf("duration is %v: want 1ms to %v", o.Duration, maxDuration))
	}
	if !(o.Rate >= 0 && o.Rate <= maxRate) {
		errs = append(errs, fmt.Errorf("rate is %v: want up to %.0f a second, or 0 for closed loops", o.Rate, maxRate))
	}
	for _, name := range o.Scenarios {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name }) {
			errs = append(errs, fmt.Errorf("unknown scenario %q: want one or more of %s", name, strings.Join(names(), ", ")))
		}
	}
	return errors.Join(errs...)
}

// Server is a server to measure.
type Server struct {
	// Kubeconfig is a file; empty means the one that kubectl uses.
	Kubeconfig string `json:"-"`
	// Context is a context of the file; empty means the current one.
	Context string `json:"context,omitempty"`
	// PIDs are the server's processes on this machine. If empty, CPU and memory are not
	// measured.
	PIDs []int `json:"pids,omitempty"`
	// Pad is the number of bytes added to each pod sent, up to 1 MiB.
	Pad int `json:"pad,omitempty"`
	// StartCommand is a shell command that runs the server in the foreground, for the
	// scenario start. If empty, that scenario is skipped.
	StartCommand string `json:"startCommand,omitempty"`
	// OtherKubeconfig is a file, with the current context, for another server of the same
	// cluster: both keep their objects in one etcd. If empty, list-fresh reads from the
	// server itself, outage uses it alone, and crd-other-server is skipped.
	OtherKubeconfig string `json:"-"`
	// OutageCommand is a shell command that makes something fail, for the scenario outage:
	// for example, it kills the leader of etcd. If empty, that scenario is skipped.
	OutageCommand string `json:"outageCommand,omitempty"`
	// RepairCommand is a shell command that undoes OutageCommand, at the end of each round.
	// It runs also if the round fails. Empty means that nothing has to be undone.
	RepairCommand string `json:"repairCommand,omitempty"`
	// EtcdMetrics are the URLs of /metrics of all members of the server's etcd, for the
	// scenario idle-etcd. If empty, that scenario is skipped.
	EtcdMetrics []string `json:"etcdMetrics,omitempty"`
}

func (s Server) check() error {
	if s.Pad < 0 || s.Pad > maxPad {
		return fmt.Errorf("pad is %d: want 0 to %d bytes", s.Pad, maxPad)
	}
	for _, pid := range s.PIDs {
		if pid < 1 {
			return fmt.Errorf("%d is not a process ID", pid)
		}
	}
	if s.RepairCommand != "" && s.OutageCommand == "" {
		return errors.New("a repair command requires an outage command")
	}
	for _, address := range s.EtcdMetrics {
		if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%q is not a URL of metrics: want one such as http://127.0.0.1:2379/metrics", address)
		}
	}
	return nil
}
