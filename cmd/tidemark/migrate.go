package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/etcdsnapshot"
	"github.com/tidemark-dev/tidemark/internal/migrate"
	"github.com/tidemark-dev/tidemark/internal/peers"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// migrateFlags are the flags of migrate.
type migrateFlags struct {
	from, to    string
	cluster     etcdstore.Cluster
	encryption  string
	permissions string
	dir         datadir.Dir
	dryRun      bool
	verify      bool
	noHistory   bool
	accept      bool
	live        bool
	kubeconfig  string // of the server, for live from a directory
}

// snapshotScheme begins the target that is a snapshot file.
const snapshotScheme = "etcd-snapshot:"

func newMigrate() *cobra.Command {
	f := new(migrateFlags)
	c := &cobra.Command{
		Use:   "migrate --from=DIR|URL --to=DIR|etcd-snapshot:FILE",
		Short: "Move a server between a data directory and etcd",
		Long: `Migrate copies the objects of a server to another store, and verifies the copy. Every object
keeps its resource version, so clients go on where they were.

From a data directory to etcd, it writes a snapshot file, which etcdutl restores to a new
member: a running etcd gives the resource versions itself, so it cannot take others. The
history moves, too: watches continue from resource versions before the migration.

From etcd to a data directory, it reads a running etcd. The history stays behind: watches
from older resource versions get 410 Gone, and their clients list again.

No server uses the source meanwhile, except with --live. The source is not changed. After an
error or Ctrl-C there is no target. The exit code is 1 if a single version differs.`,
		Example: `  # To etcd: what would be copied, and is there space for it
  tidemark migrate --from=./data --to=etcd-snapshot:snapshot.db --dry-run

  # Write the snapshot, restore it, start etcd with it, and compare both
  tidemark migrate --from=./data --to=etcd-snapshot:snapshot.db
  etcdutl snapshot restore snapshot.db --data-dir=./default.etcd
  tidemark migrate --from=./data --to=http://127.0.0.1:2379 --verify

  # The same while the server goes on; stop it when migrate says so
  tidemark migrate --from=./data --to=etcd-snapshot:snapshot.db --live

  # Back from etcd to a data directory
  tidemark migrate --from=http://127.0.0.1:2379 --to=./data2

  # The same while the servers go on; stop them when it says so, and press Enter
  tidemark migrate --from=http://127.0.0.1:2379 --to=./data2 --live`,
		Args: arguments(nil, ": name the source with --from and the target with --to"),
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := untilInterrupted(c)
			defer stop()
			return f.run(ctx, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.from, "from", "", "source: a data directory, or the URLs of an etcd cluster as in --etcd-servers")
	flags.StringVar(&f.to, "to", "", "target: a new data directory, or etcd-snapshot:FILE for a new snapshot file; with --verify also the URLs of an etcd cluster")
	flags.BoolVar(&f.dryRun, "dry-run", false, "read and convert everything, and write nothing")
	flags.BoolVar(&f.verify, "verify", false, "compare a data directory with a running etcd, and write nothing")
	flags.BoolVar(&f.live, "live", false, "copy while servers write. From a data directory: copy a backup of its server, and add the last changes when the server has ended. From etcd: follow the changes, and finish when Enter is pressed, after the servers were stopped")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the server, for --live from a data directory (default: the file kubeconfig in it)")
	flags.BoolVar(&f.noHistory, "no-history", false, "write the current objects alone to the snapshot; watches from older resource versions get 410 Gone")
	flags.BoolVar(&f.accept, "accept-differences", false, "write the snapshot although versions differ from it after they were read back")
	flags.StringVar(&f.encryption, "encryption-provider-config", "", "file with the EncryptionConfiguration of the server; it applies to the source and the target")
	o := &f.cluster
	flags.StringVar(&o.Prefix, "etcd-prefix", "/registry", "what all keys in etcd begin with")
	flags.StringVar(&o.CAFile, "etcd-cafile", "", "file with the certificate authorities that verify the members of etcd (default: those of the system)")
	flags.StringVar(&o.CertFile, "etcd-certfile", "", "file with the client certificate for etcd")
	flags.StringVar(&o.KeyFile, "etcd-keyfile", "", "file with the key of --etcd-certfile")
	flags.DurationVar(&o.EventTTL, "event-ttl", defaultEventTTL, "how long events in the snapshot stay after its restore")
	addPermissions(c, &f.permissions)
	return c
}

// endpoint is a source or a target.
type endpoint struct {
	servers  []string // of etcd
	snapshot string   // a file
	dir      string
}

// parseEndpoint reads --from or --to.
func parseEndpoint(flag, value string) (e endpoint, err error) {
	file, isSnapshot := strings.CutPrefix(value, snapshotScheme)
	switch {
	case value == "":
		return e, fmt.Errorf("--%s is missing: name a data directory, the URLs of etcd, or for --to a file: %sFILE", flag, snapshotScheme)
	case isSnapshot && file == "":
		return e, fmt.Errorf("--%s=%s lacks the file: %sFILE", flag, value, snapshotScheme)
	case isSnapshot:
		e.snapshot = file
	case strings.HasPrefix(value, "etcd:"):
		return e, fmt.Errorf("--%s=%s: the URLs of etcd begin with http:// or https://, as in --etcd-servers", flag, value)
	case strings.Contains(value, "://"):
		e.servers = strings.Split(value, ",")
	default:
		if info, err := os.Stat(value); err == nil && !info.IsDir() {
			return e, fmt.Errorf("--%s=%s is a file: want a data directory, the URLs of etcd, or %sFILE as a target", flag, value, snapshotScheme)
		}
		e.dir = value
	}
	return e, nil
}

// run checks the command line, and runs the migration.
func (f *migrateFlags) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	from, err := parseEndpoint("from", f.from)
	if err != nil {
		return usageError{err}
	}
	to, err := parseEndpoint("to", f.to)
	if err != nil {
		return usageError{err}
	}
	if err := f.check(from, to); err != nil {
		return usageError{err}
	}
	set, err := encryption.Load(encryption.Config{Path: f.encryption})
	if err != nil {
		return fmt.Errorf("--encryption-provider-config=%w", err)
	}
	defer set.Close()
	set.Await(ctx)
	steps := &steps{p: progress.Progress{W: stderr, Terminal: isTerminal(stderr)}}
	m := &migration{migrateFlags: f, set: set, stdin: stdin, stdout: stdout, steps: steps}
	switch {
	case f.verify:
		err = m.compare(ctx)
	case to.snapshot != "":
		err = m.toSnapshot(ctx, to.snapshot)
	default:
		err = m.fromEtcd(ctx)
	}
	steps.end(err)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return errors.New("interrupted: there is no target, and the source is as before")
	}
	return err
}

// check refuses sources and targets that do not go together, and sets the directory and the cluster.
func (f *migrateFlags) check(from, to endpoint) (err error) {
	f.dir.Path, f.cluster.Servers = from.dir, from.servers
	switch {
	case from.snapshot != "":
		return fmt.Errorf("--from=%s: a snapshot is no source: restore it with etcdutl, start etcd, and name its URL", f.from)
	case f.verify:
		if (from.dir != "") == (to.dir != "") || to.snapshot != "" {
			return errors.New("--verify compares a data directory with a running etcd: name one with --from and the other one with --to")
		}
		if f.dryRun || f.noHistory || f.accept || f.live {
			return errors.New("--verify compares, and has no other options of the copy")
		}
		f.dir.Path, f.cluster.Servers = from.dir+to.dir, append(from.servers, to.servers...)
	case to.servers != nil && from.dir != "":
		return fmt.Errorf("--to=%s: a running etcd gives the resource versions itself, so objects cannot keep theirs. "+
			"Write a snapshot with --to=%ssnapshot.db, restore it with 'etcdutl snapshot restore', and start etcd with that. To compare a running etcd with the directory, add --verify", f.to, snapshotScheme)
	case from.dir != "" && to.dir != "":
		return fmt.Errorf("--from and --to are both directories: copy one with tidemark backup and restore, or write a snapshot for etcd with --to=%sFILE", snapshotScheme)
	case from.servers != nil && to.dir == "":
		return fmt.Errorf("--to=%s: the target for objects of etcd is a new data directory. To move from one etcd to another one, use 'etcdctl snapshot save' and 'etcdutl snapshot restore'", f.to)
	case from.servers != nil:
		if f.noHistory || f.accept {
			return errors.New("--no-history and --accept-differences are for snapshots")
		}
		f.dir.Path = to.dir
	}
	switch {
	case f.live && f.dryRun:
		return errors.New("--live copies, and --dry-run does not")
	case f.kubeconfig != "" && (!f.live || from.dir == ""):
		return errors.New("--kubeconfig is for --live from a data directory")
	}
	if f.cluster.EventTTL <= 0 {
		return fmt.Errorf("--event-ttl=%v: want more than zero", f.cluster.EventTTL)
	}
	if f.dir.GroupAccess, err = groupAccess(f.permissions); err != nil {
		return err
	}
	if f.cluster.Servers != nil {
		return f.cluster.Check()
	}
	return nil
}

// steps shows the steps of a migration. It is safe for concurrent use.
type steps struct {
	mu   sync.Mutex
	p    progress.Progress
	step string
	done int
	next time.Time
}

// at shows how far a step is; all is zero if that is not known.
func (s *steps) at(step string, done, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step != s.step {
		s.finish(nil)
		s.step = step
	}
	s.done = done
	now := time.Now()
	if now.Before(s.next) {
		return
	}
	s.next = now.Add(time.Second / 5)
	if all == 0 {
		s.p.Step("%s: %d", step, done)
		return
	}
	s.p.Step("%s: %d of %d (%d %%)", step, done, all, int64(done)*100/int64(all))
}

// end ends the step.
func (s *steps) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(err)
}

// say shows a line while steps go on.
func (s *steps) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.Done(format, args...)
}

// finish is end. The caller holds mu.
func (s *steps) finish(err error) {
	if s.step != "" && err == nil {
		if s.done == 0 { // the number is not known
			s.p.Done("%s: done", s.step)
		} else {
			s.p.Done("%s: %d, done", s.step, s.done)
		}
	}
	s.step = ""
	s.p.Step("")
}

// migration is a run of migrate.
type migration struct {
	*migrateFlags
	set    *encryption.Set
	stdin  io.Reader
	stdout io.Writer
	steps  *steps
}

// withLog calls a function with the log of the directory, open for reading alone.
func (m *migration) withLog(ctx context.Context, f func(store.Log) error) error {
	m.dir.ReadOnly = true
	log, err := m.dir.OpenLog(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(encryption.Wrap(log, encryption.NewActive(m.set))), log.Close())
}

// toSnapshot writes a snapshot file.
func (m *migration) toSnapshot(ctx context.Context, file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("the file %s exists: name another one, or remove it", file)
	}
	// One that was killed leaves them, each as large as the source.
	switch parts, err := etcdsnapshot.Parts(file); {
	case err != nil:
		return err
	case len(parts) > 0:
		return fmt.Errorf("there are parts of an unfinished snapshot: %s: if no other migration runs, remove them (rm -r)", strings.Join(parts, ", "))
	}
	if m.live {
		return m.toSnapshotLive(ctx, file)
	}
	return m.withLog(ctx, func(log store.Log) error {
		s, report, err := m.survey(ctx, log, file)
		if err != nil {
			return err
		}
		if m.dryRun {
			if err := s.Convert(ctx); err != nil {
				return err
			}
			m.steps.end(nil)
			fmt.Fprintf(m.stdout, "Nothing was written. %s would be copied:\n\n", m.dir.Path)
			return errors.Join(report.Print(m.stdout), report.Err())
		}
		size, err := s.Write(ctx, file, m.accept)
		if err == nil {
			err = m.markMoved(report, file)
		}
		if err != nil {
			return err
		}
		m.steps.end(nil)
		return m.describeSnapshot(report, file, size)
	})
}

// markMoved marks the directory, whose lock is held: its server would acknowledge writes that the snapshot lacks.
func (m *migration) markMoved(r *migrate.Report, file string) error {
	file, err := filepath.Abs(file) // the mark is read elsewhere
	if err != nil {
		return err
	}
	return m.dir.MarkMoved(fmt.Sprintf("the snapshot %s at resource version %d, for etcd", file, r.Head))
}

// survey prepares a snapshot of a log, and checks the free space for it.
func (m *migration) survey(ctx context.Context, log store.Log, file string) (*migrate.Snapshot, *migrate.Report, error) {
	s := &migrate.Snapshot{
		Log: log, Codec: m.cluster.Codec(m.set), NoHistory: m.noHistory,
		TTL: m.cluster.TTL, Progress: m.steps.at,
	}
	report, err := s.Survey(ctx)
	if err == nil && report.Head == 0 {
		err = fmt.Errorf("data directory %s: no object was ever written", m.dir.Path)
	}
	if err == nil {
		err = m.preflight(file, report.Total().Bytes)
	}
	return s, report, err
}

// The default of etcd's --quota-backend-bytes, and where etcd's documentation advises to stay below.
const (
	etcdQuota     = 2 << 30
	etcdMostQuota = 8 << 30
)

// describeSnapshot prints the report, and the next steps.
func (m *migration) describeSnapshot(r *migrate.Report, file string, size int64) error {
	fmt.Fprintf(m.stdout, "The snapshot %s is complete (%.1f MiB), and every version in it was compared with %s:\n\n", file, float64(size)/(1<<20), m.dir.Path)
	if err := r.Print(m.stdout); err != nil {
		return err
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(m.stdout, "Differs: %s\n", problem)
	}
	if forks, err := filepath.Glob(filepath.Join(m.dir.Path, "forks", "*", "fork.json")); err == nil && len(forks) > 0 {
		fmt.Fprintf(m.stdout, "Not copied: %d kept forks, which stay in the data directory.\n", len(forks))
	}
	if size > etcdQuota*3/4 {
		fmt.Fprintf(m.stdout, "etcd accepts no writes beyond its quota, 2 GiB by default: start it with --quota-backend-bytes=%d.\n", etcdMostQuota)
	}
	_, err := fmt.Fprintf(m.stdout, `Restore it, start etcd, compare, and start the server with the keys of the old one:

  etcdutl snapshot restore %[1]s --data-dir=default.etcd
  etcd --data-dir=default.etcd
  tidemark migrate --from=%[2]s --to=http://127.0.0.1:2379 --verify%[4]s
  tidemark pki copy %[2]s %[3]s
  tidemark serve --etcd-servers=http://127.0.0.1:2379 --data-dir=%[3]s%[4]s
`, file, strings.TrimSuffix(m.dir.Path, "/"), strings.TrimSuffix(m.dir.Path, "/")+"-etcd", m.sameFlags())
	return err
}

// sameFlags returns the flags that the next commands need, too.
func (m *migration) sameFlags() string {
	if m.encryption == "" {
		return ""
	}
	return " --encryption-provider-config=" + m.encryption
}

// preflight checks the free space for a target with objects of so many bytes. A copy takes twice as much while it is
// sorted.
func (m *migration) preflight(target string, bytes int64) error {
	const fixed = 64 << 20
	needed := 2*bytes + fixed
	free, known := datadir.FreeBytes(filepath.Dir(target))
	if !known {
		return nil
	}
	m.steps.say("space: %.1f MiB free, up to %.1f MiB needed", float64(free)/(1<<20), float64(needed)/(1<<20))
	if free < needed {
		return fmt.Errorf("%s has %d bytes free, and the migration needs up to %d: make space, or name a target elsewhere", filepath.Dir(target), free, needed)
	}
	return nil
}

// withDirectory calls a function with the reader of etcd, at its newest revision.
func (m *migration) withDirectory(ctx context.Context, f func(*migrate.Directory, store.Revision) error) error {
	e, err := m.cluster.OpenExport(m.set)
	if err != nil {
		return err
	}
	d := &migrate.Directory{Export: e, Progress: m.steps.at}
	if !m.live && !m.verify && !m.dryRun {
		if err = idle(ctx, d); errors.As(err, new(*migrate.InUseError)) {
			err = fmt.Errorf("%w. Stop all servers, or copy with --live while they go on", err)
		}
	}
	var at store.Revision
	if err == nil {
		at, err = d.Begin(ctx)
	}
	if err == nil {
		err = f(d, at)
	}
	return errors.Join(err, e.Close())
}

// idle returns a *migrate.InUseError if a server uses etcd.
func idle(ctx context.Context, d *migrate.Directory) error {
	return d.Idle(ctx, &migrate.Servers{Collection: peers.Leases, Prefix: peers.LeasePrefix, Name: peers.ServerOf, Renewal: peers.LongestRenewal})
}

// fromEtcd makes a data directory of the objects of etcd.
func (m *migration) fromEtcd(ctx context.Context) error {
	if err := m.dir.CheckNew(); err != nil {
		return err
	}
	return m.withDirectory(ctx, func(d *migrate.Directory, at store.Revision) error {
		if err := m.preflightFromEtcd(ctx, d.Export, at); err != nil {
			return err
		}
		if m.dryRun {
			return m.dryRunFromEtcd(ctx, d)
		}
		report, err := m.importFrom(ctx, d, at)
		if err != nil {
			return err
		}
		m.steps.end(nil)
		fmt.Fprintf(m.stdout, "The data directory %s is complete, and every object in it was compared with etcd:\n\n", m.dir.Path)
		err = report.Print(m.stdout)
		fmt.Fprintf(m.stdout, `Start the server with the keys of the old one, whose directory is DIR:

  tidemark pki copy DIR %[1]s
  tidemark serve --data-dir=%[1]s%[2]s
`, m.dir.Path, m.sameFlags())
		return err
	})
}

// preflightFromEtcd checks the free space for the objects of etcd, if their size is known.
func (m *migration) preflightFromEtcd(ctx context.Context, e *etcdstore.Export, at store.Revision) error {
	s, err := e.Status(ctx)
	if err != nil {
		return err
	}
	if s.Version == "" {
		m.steps.say("etcd: revision %d; the free space is not checked, because etcd reports its size to users with its role root alone", at)
		return nil
	}
	m.steps.say("etcd %s: revision %d, %.1f MiB used of %.1f MiB, quota %.1f MiB", s.Version, at,
		float64(s.UsedBytes)/(1<<20), float64(s.Bytes)/(1<<20), float64(s.QuotaBytes)/(1<<20))
	return m.preflight(m.dir.Path, s.UsedBytes)
}

// importFrom makes the data directory.
func (m *migration) importFrom(ctx context.Context, d *migrate.Directory, at store.Revision) (report *migrate.Report, err error) {
	path, err := filepath.Abs(m.dir.Path) // the mark is read elsewhere
	if err != nil {
		return nil, err
	}
	marked := false
	plain, copied, failed := d.Objects(ctx)
	encrypted, failedEncrypt := m.set.Encrypt(plain)
	i := datadir.Import{
		Revision: at, Objects: encrypted,
		Err: func() error {
			if err := errors.Join(failed(), failedEncrypt()); err != nil {
				return err
			}
			if len(copied.Collections) == 0 {
				return fmt.Errorf("etcd has no objects below %s", m.cluster.Prefix)
			}
			return nil
		},
		Verify: func(log store.Log) (err error) {
			if report, err = d.Verify(ctx, encryption.Wrap(log, encryption.NewActive(m.set))); err != nil {
				return err
			}
			m.steps.end(nil)
			if err := d.Export.MarkMoved(ctx, "the data directory "+path); err != nil {
				return fmt.Errorf("the mark that the objects were moved, which keeps servers from writing to etcd: %w", err)
			}
			marked = true
			return d.Unchanged(ctx)
		},
	}
	if m.live {
		i.Amendments = m.amendments(ctx, d)
	}
	if _, err = m.dir.Import(ctx, i); err != nil && marked {
		err = errors.Join(err, d.Export.MarkMoved(context.WithoutCancel(ctx), ""))
	}
	return report, err
}

// amendments follows etcd until a line comes from the standard input, and no server uses etcd.
func (m *migration) amendments(ctx context.Context, d *migrate.Directory) iter.Seq2[datadir.Amendment, error] {
	return func(yield func(datadir.Amendment, error) bool) {
		ctx, fail := context.WithCancelCause(ctx)
		defer fail(nil)
		done := make(chan struct{})
		ready := func(at store.Revision) {
			m.steps.say("The copy follows etcd, and has reached revision %d. Stop all servers, then press Enter.", at)
			go func() { // it ends with the process
				if err := m.awaitStop(ctx, d.Export); err != nil {
					fail(err)
					return
				}
				close(done)
			}()
		}
		for b, err := range d.Follow(ctx, ready, done) {
			switch {
			case err == nil:
				err = m.encrypt(b.Entries)
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			}
			if !yield(datadir.Amendment{Revision: b.Through, Entries: b.Entries}, err) || err != nil {
				return
			}
		}
	}
}

// awaitStop waits for a line of the standard input after which no server uses etcd.
func (m *migration) awaitStop(ctx context.Context, e *etcdstore.Export) error {
	lines := bufio.NewReader(m.stdin)
	var used error
	for {
		if _, err := lines.ReadString('\n'); err != nil {
			return cmp.Or(used, fmt.Errorf("the standard input ended before Enter was pressed: %w", err))
		}
		m.steps.say("Waiting up to %v in case a server renews its Lease.", peers.LongestRenewal)
		err := idle(ctx, &migrate.Directory{Export: e})
		if !errors.As(err, new(*migrate.InUseError)) {
			return err
		}
		used = fmt.Errorf("%w after Enter was pressed", err)
		m.steps.say("%v. Stop it, then press Enter.", err)
	}
}

// encrypt gives the objects of entries their stored form.
func (m *migration) encrypt(entries []store.Entry) error {
	for i := range entries {
		e := &entries[i]
		if e.Object == nil {
			continue
		}
		encrypted, failed := m.set.Encrypt(func(yield func(string, *store.Object) bool) { yield(e.Collection, e.Object) })
		for _, o := range encrypted {
			e.Object = o
		}
		if err := failed(); err != nil {
			return err
		}
	}
	return nil
}

// dryRunFromEtcd reads and decodes everything.
func (m *migration) dryRunFromEtcd(ctx context.Context, d *migrate.Directory) error {
	objects, report, failed := d.Objects(ctx)
	for range objects {
	}
	if err := failed(); err != nil && report.Err() == nil {
		return err
	}
	m.steps.end(nil)
	fmt.Fprintf(m.stdout, "Nothing was written. Of %s would be copied:\n\n", m.from)
	return errors.Join(report.Print(m.stdout), failed())
}

// compare compares a data directory with a running etcd.
func (m *migration) compare(ctx context.Context) error {
	return m.withLog(ctx, func(log store.Log) error {
		return m.withDirectory(ctx, func(d *migrate.Directory, _ store.Revision) error {
			report, err := d.Verify(ctx, log)
			if err != nil && report.Err() == nil {
				return err
			}
			m.steps.end(nil)
			report.Current = true
			if err == nil {
				fmt.Fprintf(m.stdout, "Every object of %s is in etcd, and no other one:\n\n", m.dir.Path)
			}
			return errors.Join(report.Print(m.stdout), err)
		})
	})
}
