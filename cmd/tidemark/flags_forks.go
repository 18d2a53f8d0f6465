package main

import (
	"cmp"
	"errors"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
)

func (f *serveFlags) registerForks(flags *pflag.FlagSet) {
	flags.IntVar(&f.forks, "max-forks", tidemark.DefaultForks, "how many forks exist at a time (see tidemark fork), 0 for none")
	flags.Var(&f.forkTotalBytes, "fork-max-total-bytes", "memory of all forks together; at the limit, new forks and writes that grow objects in forks are refused with 507")
	flags.Var(&f.forkBytes, "fork-max-bytes", "memory of each fork for what it writes, half of it for its history; at the limit, writes that grow objects are refused with 507")
}

func (f *serveFlags) checkForks() error {
	if f.forks < 0 {
		return errors.New("--max-forks is negative: want 0 for no forks, or more")
	}
	if f.forkBytes <= 0 {
		return errors.New("--fork-max-bytes is not positive")
	}
	if f.forkTotalBytes <= 0 {
		return errors.New("--fork-max-total-bytes is not positive")
	}
	f.server.Forks = tidemark.Forks{Max: cmp.Or(f.forks, -1), MaxBytes: int64(f.forkBytes), MaxTotalBytes: int64(f.forkTotalBytes)}
	return nil
}
