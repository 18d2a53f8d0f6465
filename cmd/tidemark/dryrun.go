package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/backups/s3"
)

// tryOut starts a server with the configuration, and stops it: the files that flags name are read, the
// services that they configure are connected as in a start. It has a free port, and its objects in memory; with a state of
// then, the directory must have that. It writes no audit log.
func (f *serveFlags) tryOut(ctx context.Context, stdout, stderr io.Writer) error {
	s := &f.server
	s.Logger = f.logging.logger(stderr)
	address, data := net.JoinHostPort(s.Listen.Address, strconv.Itoa(s.Listen.Port)), "memory"
	if s.Listen.Port == 0 {
		address = s.Listen.Address + ", a free port"
	}
	for _, more := range s.Listen.MoreAddresses {
		address += "\n           " + more
	}
	s.Listen.MoreAddresses = slices.DeleteFunc(s.Listen.MoreAddresses, func(a string) bool { return strings.HasPrefix(a, "unix:") })
	switch {
	case f.inMemory:
	case f.etcd.on():
		data = "etcd at " + strings.Join(f.etcd.cluster.Servers, ", ")
	case f.follow.on():
		data = "a copy of " + f.follow.url
	case f.past(): // nothing is written to the directory
		storage, err := f.storage(ctx)
		if err != nil {
			return err
		}
		s.Storage, data = storage, f.pastOf()
	default:
		path, err := f.dataPath()
		if err != nil {
			return err
		}
		data = path
	}
	s.Listen.Port, s.Shutdown.Delay = 0, 0
	if bucket, ok := s.Backups.Place.(*s3.Bucket); ok && !f.follow.on() { // a follower makes no backups
		if err := errors.Join(bucket.Open(ctx), bucket.Close()); err != nil {
			return err
		}
	}
	s.Backups = tidemark.Backups{} // they were checked, and are those of a directory
	if path := s.Audit.Log.Path; path != "" && path != "-" {
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return fmt.Errorf("--audit-log-path=%s: there is no such directory", path)
		}
		s.Audit.Log.Path = os.DevNull
	}
	closeTracing, err := f.openTracing(ctx)
	if err != nil {
		return err
	}
	defer closeTracing()
	if err := errors.Join(s.Start(ctx), s.Close()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "The configuration is valid.\n  address  %s\n  data     %s\n", address, data)
	return nil
}
