package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/etcdstore"
)

// etcdFlags are the flags of kube-apiserver for objects in etcd.
type etcdFlags struct {
	cluster   etcdstore.Cluster
	overrides []string
	reuse     int64 // seconds
	// count has no effect: the server knows the numbers of objects at any time.
	count time.Duration
}

func (e *etcdFlags) register(flags *pflag.FlagSet) {
	c := &e.cluster
	flags.StringSliceVar(&c.Servers, "etcd-servers", nil, "URLs of the members of an etcd cluster that keeps the objects, http://host:port or https://host:port (default: the data directory keeps them)")
	flags.StringVar(&c.Prefix, "etcd-prefix", "/registry", "what all keys in etcd begin with")
	flags.StringVar(&c.CAFile, "etcd-cafile", "", "file with the certificate authorities that verify the members of etcd (default: those of the system)")
	flags.StringVar(&c.CertFile, "etcd-certfile", "", "file with the client certificate for etcd")
	flags.StringVar(&c.KeyFile, "etcd-keyfile", "", "file with the key of --etcd-certfile")
	flags.DurationVar(&c.CompactionInterval, "etcd-compaction-interval", 5*time.Minute, "pause between compactions of etcd, which delete older history; 0 compacts nothing")
	flags.DurationVar(&e.count, "etcd-count-metric-poll-period", time.Minute, "accepted; has no effect: metrics have the numbers of objects at any time")
	flags.DurationVar(&c.UsageInterval, "etcd-db-metric-poll-interval", 30*time.Second, "pause between polls of the size of etcd's database")
	flags.DurationVar(&c.HealthTimeout, "etcd-healthcheck-timeout", 2*time.Second, "how long the check etcd of /livez, /readyz and /healthz waits for etcd, or with --follow for the server that is followed")
	flags.DurationVar(&c.ReadyTimeout, "etcd-readycheck-timeout", 2*time.Second, "how long the check etcd-readiness of /readyz waits for etcd, or with --follow for the server that is followed")
	flags.Int64Var(&e.reuse, "lease-reuse-duration-seconds", 60, "how many seconds new events get the same lease of etcd")
	flags.StringSliceVar(&e.overrides, "etcd-servers-overrides", nil, "refused: all resources have one clock, and so one etcd cluster")
}

// on reports whether etcd keeps the objects.
func (e *etcdFlags) on() bool { return len(e.cluster.Servers) > 0 }

// complete adds the scheme to servers that have none, as etcd's own clients do.
func (e *etcdFlags) complete(servers []string) {
	scheme := "http://"
	if e.cluster.CAFile != "" || e.cluster.CertFile != "" || e.cluster.KeyFile != "" {
		scheme = "https://"
	}
	for i, server := range servers {
		if server != "" && !strings.Contains(server, "://") {
			servers[i] = scheme + server
		}
	}
}

// check reports invalid values, and completes the cluster. Changed reports whether a flag was given.
func (e *etcdFlags) check(f *serveFlags, changed func(string) bool) error {
	if len(e.overrides) > 0 {
		return errors.New("--etcd-servers-overrides is not supported: resource versions of all resources come from one clock, and two etcd clusters have two")
	}
	if e.cluster.HealthTimeout <= 0 || e.cluster.ReadyTimeout <= 0 {
		return errors.New("--etcd-healthcheck-timeout and --etcd-readycheck-timeout want values above zero")
	}
	switch {
	case !e.on() && changed("etcd-servers"):
		return errors.New("--etcd-servers has no URL: name one, or leave the flag out to keep the objects in the data directory")
	case !e.on():
		for _, name := range []string{"etcd-prefix", "etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
			if changed(name) {
				return fmt.Errorf("--%s is for etcd, and --etcd-servers is missing", name)
			}
		}
		return nil
	}
	e.complete(e.cluster.Servers)
	switch {
	case f.inMemory:
		return errors.New("--etcd-servers and --in-memory exclude each other")
	case f.past() && !f.isDump:
		return errors.New("--at is for a data directory: --etcd-servers has no states of then")
	case f.maxDisk != defaultMaxDisk:
		return errors.New("--history-max-disk-bytes is for a data directory: with --etcd-servers, etcd keeps the history until its compaction (--etcd-compaction-interval)")
	case f.acceptLoss:
		return errors.New("--accept-data-loss is for a data directory, not for --etcd-servers")
	case e.cluster.CompactionInterval < 0 || e.cluster.UsageInterval <= 0 || e.reuse <= 0:
		return errors.New("the intervals of the --etcd flags and --lease-reuse-duration-seconds want values above zero")
	}
	e.cluster.CompactionInterval = cmp.Or(e.cluster.CompactionInterval, -1)
	e.cluster.LeaseReuse = time.Duration(e.reuse) * time.Second
	e.cluster.EventTTL = f.server.EventTTL
	if err := e.cluster.Check(); err != nil {
		return fmt.Errorf("--etcd-servers: %w", err)
	}
	return nil
}

// open returns the cluster as the server uses it. The directory of --data-dir has the server's other
// files.
func (e *etcdFlags) open(f *serveFlags) (*etcdstore.Cluster, error) {
	path, err := f.dataPath()
	if err != nil {
		return nil, err
	}
	if f.dataDir == "" {
		path += "-etcd"
	}
	f.dataDir, e.cluster.Path, e.cluster.Logger = path, path, f.server.Logger
	e.cluster.GroupAccess = f.permissions == "group"
	return &e.cluster, nil
}
