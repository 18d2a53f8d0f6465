package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// fairnessFlags are the flags about requests that execute at once.
type fairnessFlags struct {
	on            bool
	reads, writes int
}

// The defaults of kube-apiserver.
const (
	defaultReads  = 400
	defaultWrites = 200
)

func (f *serveFlags) registerFairness(flags *pflag.FlagSet) {
	flags.BoolVar(&f.fairness.on, "enable-priority-and-fairness", true, "share the seats of executing requests by FlowSchemas and PriorityLevelConfigurations; otherwise refuse requests beyond --max-requests-inflight and --max-mutating-requests-inflight")
	flags.IntVar(&f.fairness.reads, "max-requests-inflight", defaultReads, "with --enable-priority-and-fairness, this plus --max-mutating-requests-inflight is the number of seats of all priority levels; without it, the limit of reads that execute at once, 0 for none")
	flags.IntVar(&f.fairness.writes, "max-mutating-requests-inflight", defaultWrites, "see --max-requests-inflight; without --enable-priority-and-fairness, the limit of writes that execute at once, 0 for none")
}

func (f *serveFlags) checkFairness() error {
	c := &f.fairness
	switch {
	case c.reads < 0:
		return errors.New("--max-requests-inflight can not be negative value")
	case c.writes < 0:
		return errors.New("--max-mutating-requests-inflight can not be negative value")
	case c.on && c.reads+c.writes == 0:
		return fmt.Errorf("--max-requests-inflight=%d and --max-mutating-requests-inflight=%d: they must add up to something positive", c.reads, c.writes)
	}
	s := &f.server.Fairness
	s.Disabled = !c.on
	s.MaxRequests, s.MaxMutatingRequests = cmp.Or(c.reads, -1), cmp.Or(c.writes, -1)
	return nil
}
