package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Options select the checks. A zero field means its default.
type Options struct {
	// Areas and Checks select checks by area and by ID; empty means all.
	Areas, Checks []string
	// Resource is the resource that the checks use, such as "deployments.apps" or
	// "foos.example.com/v1". Without a version, the server's preferred one is used. It
	// must be namespaced. Empty means configmaps.
	Resource string
	// Template is an object of Resource in JSON or YAML, from which the checks make theirs.
	// Custom resources with required fields need one. Of its metadata only labels and
	// annotations are used, and its status is ignored. Empty means a minimal object.
	Template []byte
	// Namespace is an existing namespace, for users without permission to create one. Empty
	// means a new namespace with a random name.
	Namespace string
	// Seed is the seed of random choices. Zero means a new one, shown in the report.
	Seed uint64
	// Timeout limits the wait for a response or an expected event, 100 ms to 10 min. Zero
	// means 15 s.
	Timeout time.Duration
	// Restart restarts the server. It may return before the server is back. An error ends
	// the run. If nil, the checks of the area restart are skipped.
	Restart func(ctx context.Context) error
	// Window is how long the server keeps history, including the delay until it compacts,
	// up to an hour. If zero, the checks of the area window are skipped.
	Window time.Duration
	// Parallel is the number of checks to run at once, 1 to 64. Zero means 4.
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

// Check returns an error for invalid options.
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
