package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Options say what to check. The zero value of a field means its default.
type Options struct {
	// Areas and Checks choose by area and by id; empty: all.
	Areas, Checks []string
	// Resource is the type whose objects the checks are made with, as
	// "configmaps" or "foos.example.com/v1": a version may follow, and is otherwise
	// the one that the server prefers. Empty: configmaps. It has to be namespaced.
	Resource string
	// Template is an object in JSON or YAML that is like those which the checks are to
	// be made with: for a type of which nothing is known, and that wants more than a
	// name. Its labels and annotations are taken, the rest of its metadata and its
	// status are not. Empty: what is known of built-in types, or nothing.
	Template []byte
	// Namespace is one that is there, for somebody who may not make one; empty: a
	// new one with a random name.
	Namespace string
	// Seed of what is random; zero: a fresh one. The report tells it.
	Seed uint64
	// Timeout bounds the wait for one answer, or for an event that has to come, 100
	// ms to 10 min; zero: 15 s.
	Timeout time.Duration
	// Restart restarts the server, and returns when that has begun or is over; nil:
	// the checks of the area restart are skipped. An error ends the run as one that
	// could not do what was asked.
	Restart func(ctx context.Context) error
	// Window is how long the server keeps its history, with what passes until it forgets,
	// up to an hour; zero: the checks of the area window are skipped.
	Window time.Duration
	// Parallel is how many checks run at once, 1 to 64; zero: 4.
	Parallel int
}

const (
	defaultTimeout  = 15 * time.Second
	minTimeout      = 100 * time.Millisecond
	maxTimeout      = 10 * time.Minute
	maxWindow       = time.Hour
	defaultParallel = 4
	maxParallel     = 64
	defaultResource = "configmaps"
)

// Defaults are the options that zero values stand for.
func Defaults() Options {
	return Options{Resource: defaultResource, Timeout: defaultTimeout, Parallel: defaultParallel}
}

func (o Options) withDefaults() Options {
	d := Defaults()
	if o.Resource == "" {
		o.Resource = d.Resource
	}
	if o.Timeout == 0 {
		o.Timeout = d.Timeout
	}
	if o.Parallel == 0 {
		o.Parallel = d.Parallel
	}
	return o
}

// Check says what is wrong with the options, nil if nothing is.
func (o Options) Check() error {
	errs := o.checkNames()
	o = o.withDefaults()
	if o.Timeout < minTimeout || o.Timeout > maxTimeout {
		errs = append(errs, fmt.Errorf("timeout is %v: want %v to %v", o.Timeout, minTimeout, maxTimeout))
	}
	if o.Window < 0 || o.Window > maxWindow {
		errs = append(errs, fmt.Errorf("window is %v: want up to %v", o.Window, maxWindow))
	}
	if o.Parallel < 1 || o.Parallel > maxParallel {
		errs = append(errs, fmt.Errorf("parallel is %d: want 1 to %d", o.Parallel, maxParallel))
	}
	if _, err := parseResource(o.Resource); err != nil {
		errs = append(errs, err)
	}
	if len(o.Template) > 0 {
		if _, err := parseTemplate(o.Template); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
