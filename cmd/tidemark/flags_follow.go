package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/follower"
)

// followFlags are the flags of a server that follows another one.
type followFlags struct {
	url, kubeconfig string
}

func (o *followFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.url, "follow", "", "URL of a server to follow, https://host:port: its objects are copied to the data directory, which serves all reads, and that server makes all writes")
	flags.StringVar(&o.kubeconfig, "follow-kubeconfig", "", "kubeconfig with the credentials for --follow, in its current context; required with --follow")
}

// on reports whether the server follows another one.
func (o *followFlags) on() bool { return o.url != "" }

// check reports invalid values. Changed reports whether a flag was given.
func (o *followFlags) check(f *serveFlags, changed func(string) bool) error {
	switch {
	case !o.on() && changed("follow"):
		return errors.New("--follow has no URL: want https://host:port")
	case !o.on() && o.kubeconfig != "":
		return errors.New("--follow-kubeconfig is for --follow: name the server to follow")
	case !o.on():
		return nil
	case o.kubeconfig == "":
		return errors.New("--follow wants a kubeconfig with credentials: name it with --follow-kubeconfig")
	case f.etcd.on():
		return errors.New("--follow and --etcd-servers exclude each other")
	case f.inMemory:
		return errors.New("--follow and --in-memory exclude each other: the copy is in the data directory")
	case f.past() && !f.isDump:
		return errors.New("--follow and --at exclude each other")
	case f.acceptLoss:
		return errors.New("--accept-data-loss is not for --follow: remove a damaged copy, and it is made again")
	case changed("controllers"):
		return errors.New("--controllers is not for --follow: the server that is followed runs the controllers")
	}
	if u, err := url.Parse(o.url); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--follow=%s: want https://host:port", o.url)
	}
	return nil
}

// open returns the copy as the server uses it.
func (o *followFlags) open(f *serveFlags) (*follower.Copy, error) {
	path, err := f.dataPath()
	if err != nil {
		return nil, err
	}
	if f.dataDir == "" {
		path += "-follower"
	}
	f.dataDir = path
	config, err := clientconfig.REST(clientconfig.Load(o.kubeconfig, ""))
	if err != nil {
		return nil, fmt.Errorf("--follow-kubeconfig: %w", err)
	}
	config.Host = o.url
	return &follower.Copy{
		Server: config, Data: &datadir.Dir{Path: path, GroupAccess: f.permissions == "group", Logger: f.server.Logger}, Logger: f.server.Logger,
		HealthTimeout: f.etcd.cluster.HealthTimeout, ReadyTimeout: f.etcd.cluster.ReadyTimeout,
	}, nil
}
