package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// Run measures one server, or two in alternating rounds, and removes the objects that it
// created. If the context ends, it returns the results so far. A scenario that fails is
// reported in its result; an error means that the run as a whole failed.
func Run(ctx context.Context, o Options, servers []Server, p progress.Progress) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if len(servers) < 1 || len(servers) > 2 {
		return nil, fmt.Errorf("%d servers: want one or two", len(servers))
	}
	if o.EqualBytes && len(servers) != 2 {
		return nil, errors.New("equal bytes need a second server to be equal to")
	}
	for _, s := range servers {
		if err := s.check(); err != nil {
			return nil, err
		}
	}
	r := &run{options: o, progress: p, report: &Report{Format: Format, Date: time.Now().UTC(), Machine: readMachine(), Options: o}}
	return r.report, r.all(ctx, servers)
}

// run is the state of a run.
type run struct {
	options  Options
	progress progress.Progress
	report   *Report
	beds     []*bed // one for each server of the report
}

func (r *run) all(ctx context.Context, servers []Server) (err error) {
	scenarios := r.selected()
	// Starts come first: the others find the server running.
	if i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == "start" }); i >= 0 {
		for i, s := range servers {
			name := s.Context
			if name == "" {
				name = []string{"server", "baseline"}[i]
			}
			r.report.Servers = append(r.report.Servers, ServerReport{Server: s, Name: name})
			r.beds = append(r.beds, &bed{server: s, options: r.options})
		}
		r.scenario(ctx, scenarios[i])
		scenarios = slices.Delete(scenarios, i, i+1)
		if len(scenarios) == 0 || ctx.Err() != nil {
			r.report.Interrupted = ctx.Err() != nil
			return nil
		}
	}
	if err := r.open(ctx, servers); err != nil {
		return err
	}
	defer func() {
		r.progress.Step("removing what was made")
		for _, b := range r.beds {
			err = errors.Join(err, b.cleanup(ctx))
			b.close()
		}
		r.progress.Step("")
	}()
	if r.options.EqualBytes {
		if err := r.equalize(ctx); err != nil {
			return fmt.Errorf("making the pods of both servers equal: %w", err)
		}
	}
	for _, s := range scenarios {
		if r.scenario(ctx, s); ctx.Err() != nil {
			r.report.Interrupted = true
			return nil
		}
	}
	return nil
}

// selected returns the scenarios to run: all of them if the options name none.
func (r *run) selected() []scenario {
	var chosen []scenario
	for _, s := range scenarios {
		if len(r.options.Scenarios) == 0 || slices.Contains(r.options.Scenarios, s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// open connects to the servers and describes them in the report.
func (r *run) open(ctx context.Context, servers []Server) error {
	suffix := fmt.Sprintf("%05x", rand.Uint32N(1<<20))
	r.beds = nil
	for i, s := range servers {
		t, err := loadTarget(s)
		if err != nil {
			return err
		}
		b, err := newBed(t, s, r.options, suffix, r.progress.Done)
		if err != nil {
			return err
		}
		d := ServerReport{Server: s, Name: t.name, URL: t.base.String()}
		if d.Version, err = t.serverVersion(ctx, b.admin); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := b.connect(ctx); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := b.openOther(ctx); err != nil {
			return fmt.Errorf("the other server of %s: %w", t.name, err)
		}
		if b.other != nil {
			d.OtherURL = b.other.target.base.String()
		}
		for _, pid := range s.PIDs {
			p, err := readProcess(pid)
			if err != nil {
				return err
			}
			d.Processes = append(d.Processes, p)
		}
		r.beds = append(r.beds, b)
		if len(r.report.Servers) < len(servers) {
			r.report.Servers = append(r.report.Servers, d)
			continue
		}
		d.Results = r.report.Servers[i].Results
		r.report.Servers[i] = d
	}
	return nil
}

// scenario measures one scenario: each variant, round by round, the servers in turn.
func (r *run) scenario(ctx context.Context, s scenario) {
	for _, v := range s.chosen(r.options) {
		name := s.name
		if v.name != "" {
			name += "/" + v.name
		}
		over := make([]bool, len(r.beds)) // skipped or failed
		for round := range r.options.Rounds {
			for k := range r.beds {
				// The one that was second is first now: neither has the warmer machine.
				i := (k + round) % len(r.beds)
				if over[i] || ctx.Err() != nil {
					continue
				}
				r.progress.Step("%s on %s, round %d of %d", name, r.report.Servers[i].Name, round+1, r.options.Rounds)
				rows, err := v.round(ctx, r.beds[i])
				over[i] = err != nil
				if err != nil && ctx.Err() == nil {
					r.ended(i, name, s.unit, err)
				}
				for _, row := range rows {
					r.add(i, name, s.unit, row)
				}
			}
		}
		for i := range r.report.Servers {
			r.tell(i, name)
		}
	}
}

// result returns the row of a server with a name, and makes it when it is not there.
func (r *run) result(server int, name, unit string) *Result {
	s := &r.report.Servers[server]
	i := slices.IndexFunc(s.Results, func(x Result) bool { return x.Name == name })
	if i < 0 {
		i = len(s.Results)
		s.Results = append(s.Results, Result{Name: name, Unit: unit})
	}
	return &s.Results[i]
}

func (r *run) add(server int, name, unit string, row row) {
	if row.name != "" {
		name += "/" + row.name
	}
	if row.unit != "" {
		unit = row.unit
	}
	x := r.result(server, name, unit)
	x.Loop = row.loop
	x.Rounds = append(x.Rounds, row.Measurements)
}

// ended records why the result has no more rounds.
func (r *run) ended(server int, name, unit string, err error) {
	x := r.result(server, name, unit)
	var skip *skipError
	if errors.As(err, &skip) {
		x.Skipped = skip.why
	} else {
		x.Failed = err.Error()
	}
}

// tell prints a line for the rows of a scenario's variant.
func (r *run) tell(server int, name string) {
	s := r.report.Servers[server]
	for _, x := range s.Results {
		if x.Name != name && !(len(x.Name) > len(name) && x.Name[:len(name)+1] == name+"/") {
			continue
		}
		r.progress.Done("%s on %s: %s", x.Name, s.Name, x.summary())
	}
}

// equalize pads the objects of the server that serves fewer bytes for a pod, a ConfigMap
// or a Deployment, so that both servers send equal bytes.
func (r *run) equalize(ctx context.Context) error {
	err := r.level(ctx, "pod", (*bed).servedPod, func(b *bed) *int { return &b.objects.pad })
	if err == nil {
		err = r.level(ctx, "ConfigMap", (*bed).servedConfigMap, func(b *bed) *int { return &b.objects.configMapPad })
	}
	if err == nil {
		err = r.level(ctx, "Deployment", (*bed).servedDeployment, func(b *bed) *int { return &b.objects.deploymentPad })
		if notServed(err) {
			err = nil // so none will be applied
		}
	}
	for i, b := range r.beds {
		s := &r.report.Servers[i]
		s.Pad, s.ConfigMapPad, s.DeploymentPad = b.objects.pad, b.objects.configMapPad, b.objects.deploymentPad
	}
	return err
}

// level pads the objects of the server that serves fewer bytes.
func (r *run) level(ctx context.Context, what string, served func(*bed, context.Context) (int, error), pad func(*bed) *int) error {
	for range 3 { // managed fields may count the padding twice
		var sizes [2]int
		for i, b := range r.beds {
			n, err := served(b, ctx)
			if err != nil {
				return err
			}
			sizes[i] = n
		}
		small, missing := r.beds[0], sizes[1]-sizes[0]
		if missing < 0 {
			small, missing = r.beds[1], -missing
		}
		r.progress.Step("a %s has %d bytes as served by %s, %d by %s", what, sizes[0], r.report.Servers[0].Name, sizes[1], r.report.Servers[1].Name)
		to := pad(small)
		if missing == 0 || *to+missing > maxPad {
			break
		}
		*to += missing
	}
	return nil
}

// servedPod returns the size of a pod in a GET response.
func (b *bed) servedPod(ctx context.Context) (int, error) {
	return b.served(ctx, podsOf, podName(0), b.objects.pod(podName(0), 0))
}

// servedConfigMap returns the size of a ConfigMap in a GET response.
func (b *bed) servedConfigMap(ctx context.Context) (int, error) {
	return b.served(ctx, configMapsOf, configMapName(0), b.objects.configMap(configMapName(0), 0, 0, ""))
}

// servedDeployment returns the size of a Deployment in a GET response.
func (b *bed) servedDeployment(ctx context.Context) (int, error) {
	return b.served(ctx, deploymentsOf, appliedName(0), b.objects.deployment(appliedName(0), 0, 0))
}

// served creates an object and returns its size in a GET response.
func (b *bed) served(ctx context.Context, resource, name string, object []byte) (int, error) {
	ns, err := b.namespace(ctx, "pods")
	if err != nil {
		return 0, err
	}
	if err := b.admin.object(ctx, http.MethodPost, b.collection(ns, resource, ""), object, true); err != nil {
		return 0, err
	}
	u := b.object(ns, resource, name)
	body, err := b.admin.small(ctx, http.MethodGet, u, nil)
	size := len(body)
	_, deleted := b.admin.small(ctx, http.MethodDelete, u, nil)
	return size, errors.Join(err, deleted)
}
