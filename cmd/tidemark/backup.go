package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
)

// backupFlags are the flags of backup.
type backupFlags struct {
	kubeconfig, context string
}

func newBackup() *cobra.Command {
	f := new(backupFlags)
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up a running server",
		Long: `Backup asks a running server for a backup of its data directory, checks it, and writes it
to FILE, or to the standard output if FILE is -. The server goes on meanwhile. The backup
has everything: all objects as of one resource version, their history, kept forks, and the
certificates and keys of the server. Protect it like the directory itself.

The user of the kubeconfig needs the permission to get the path /backup, which
cluster-admin has. The command backup restore makes a data directory of the backup.`,
		Example: `  # Back up, and look at what the backup has
  tidemark backup tidemark.tar
  tar -xOf tidemark.tar BACKUP

  # Compressed
  tidemark backup - | zstd > tidemark.tar.zst

  # Go on with it on another machine
  tidemark backup restore tidemark.tar ./data
  tidemark serve --data-dir=./data`,
		Args: arguments([]string{"FILE"}, ""),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := untilInterrupted(c)
			defer stop()
			return f.run(ctx, args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", clientconfig.Usage)
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	c.AddCommand(newBackupRestore())
	return c
}

func (f *backupFlags) run(ctx context.Context, path string, stdout, stderr io.Writer) error {
	if path == "-" && isTerminal(stdout) {
		return usageError{errors.New("the standard output is a terminal, and a backup is binary and has private keys: name a file, or redirect the output")}
	}
	config, err := clientconfig.REST(clientconfig.Load(f.kubeconfig, f.context))
	if err != nil {
		return err
	}
	if path == "-" {
		contents, err := fetchBackup(ctx, config, stdout, stderr)
		if err == nil {
			describeContents(stderr, contents)
		}
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("the file %s exists: name another one, or remove it", path)
	}
	out, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part") // a new file, which only its owner reads
	if err != nil {
		return fmt.Errorf("a file in %s: %w", filepath.Dir(path), errors.Unwrap(err)) // not with the name of the part
	}
	contents, err := fetchBackup(ctx, config, out, stderr)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = atomicfile.Rename(out.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	fmt.Fprintf(stdout, "The backup %s is complete.\n", path)
	describeContents(stdout, contents)
	return nil
}

// fetchBackup copies a backup from the server, and checks it meanwhile.
func fetchBackup(ctx context.Context, config *rest.Config, out, stderr io.Writer) (datadir.Contents, error) {
	client, err := serverclient.New(config)
	if err != nil {
		return datadir.Contents{}, err
	}
	response, err := client.Do(ctx, http.MethodGet, "/backup", "", nil)
	if err != nil {
		return datadir.Contents{}, err
	}
	defer response.Body.Close()
	count := &byteProgress{p: progress.Progress{W: stderr, Terminal: isTerminal(stderr)}}
	defer count.end()
	return datadir.VerifyBackup(ctx, io.TeeReader(response.Body, io.MultiWriter(out, count)))
}

// byteProgress shows how many bytes were written to it.
type byteProgress struct {
	p    progress.Progress
	n    int64
	next time.Time
}

// Write implements io.Writer.
func (b *byteProgress) Write(p []byte) (int, error) {
	b.n += int64(len(p))
	if now := time.Now(); now.After(b.next) {
		b.next = now.Add(time.Second / 5)
		b.p.Step("%.1f MiB", float64(b.n)/(1<<20))
	}
	return len(p), nil
}

// end removes the line.
func (b *byteProgress) end() { b.p.Step("") }

// describeContents prints the contents of a backup or a data directory.
func describeContents(w io.Writer, c datadir.Contents) {
	line := func(what string, l datadir.LogContents) {
		changed := ""
		if !l.Changed.IsZero() {
			changed = ", last changed " + l.Changed.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s: %d objects at resource version %d, history from %d%s\n", what, l.Objects, l.ResourceVersion, l.OldestResourceVersion, changed)
	}
	line("Server", c.Log)
	for _, name := range slices.Sorted(maps.Keys(c.Forks)) {
		line("Kept fork "+name, c.Forks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Skipped)) {
		fmt.Fprintf(w, "Kept fork %s is not in the backup: %s\n", name, oneLine(errors.New(c.Skipped[name])))
	}
}

// newBackupRestore makes a data directory of a backup. Until 0.1 it was the command restore.
func newBackupRestore() *cobra.Command {
	d := new(datadir.Dir)
	var permissions string
	var o datadir.RestoreOptions
	c := &cobra.Command{
		Use:   "restore FILE DIR",
		Short: "Make a data directory of a backup",
		Long: `Restore makes the data directory DIR of the backup FILE, or of the standard input if FILE is
-, and checks it. DIR does not exist or is an empty directory. No server starts on a
directory whose restore was interrupted.

Resource versions continue at the time of the restore in microseconds since 1970, and the
history before is forgotten. So clients that have seen later changes than the backup has get
410 Gone and list everything again. With --keep-history, the history and the resource
versions are those of the backup, and such clients must be restarted.`,
		Example: `  tidemark backup restore tidemark.tar ./data
  tidemark serve --data-dir=./data

  # Look at an earlier state
  tidemark backup restore --keep-history tidemark.tar ./look
  tidemark serve ./look --at=1234`,
		Args: arguments([]string{"FILE", "DIR"}, ""),
		RunE: func(c *cobra.Command, args []string) (err error) {
			d.Path = args[1]
			if d.GroupAccess, err = groupAccess(permissions); err != nil {
				return usageError{err}
			}
			ctx, stop := untilInterrupted(c)
			defer stop()
			return restoreBackup(ctx, args[0], d, o, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().BoolVar(&o.KeepHistory, "keep-history", false, "keep the history and the resource versions of the backup; clients that have seen later changes must be restarted")
	addPermissions(c, &permissions)
	return c
}

func restoreBackup(ctx context.Context, file string, d *datadir.Dir, o datadir.RestoreOptions, in io.Reader, stdout, stderr io.Writer) error {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	count := &byteProgress{p: progress.Progress{W: stderr, Terminal: isTerminal(stderr)}}
	contents, err := d.Restore(ctx, io.TeeReader(in, count), o)
	count.end()
	if err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	fmt.Fprintf(stdout, "The data directory %s is complete and consistent.\n", d.Path)
	describeContents(stdout, contents)
	if !o.KeepHistory {
		fmt.Fprintln(stdout, "Resource versions continue at the time in microseconds, so that clients that saw later changes list again.")
	}
	fmt.Fprintf(stdout, "\n  tidemark serve --data-dir=%s\n", d.Path)
	return nil
}

func newCheck() *cobra.Command {
	d := new(datadir.Dir)
	var permissions string
	c := &cobra.Command{
		Use:   "check DIR",
		Short: "Check a data directory that is not in use",
		Long: `Check reads the whole data directory DIR and verifies that it is consistent: all objects,
all history, and each step from one change to the next, of the server and of its kept
forks. No server uses the directory meanwhile. Check changes nothing in it.

It prints what the directory has, or the first fault with the file and the place.`,
		Example: `  tidemark check ~/.local/share/tidemark`,
		Args:    arguments([]string{"DIR"}, ""),
		RunE: func(c *cobra.Command, args []string) (err error) {
			d.Path = args[0]
			if d.GroupAccess, err = groupAccess(permissions); err != nil {
				return usageError{err}
			}
			contents, err := d.Check(c.Context())
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			fmt.Fprintf(out, "The data directory %s is consistent.\n", d.Path)
			describeContents(out, contents)
			return nil
		},
	}
	addPermissions(c, &permissions)
	return c
}

// untilInterrupted returns a context that ends with Ctrl-C or SIGTERM, so that the command removes
// unfinished output. A second signal ends the process.
func untilInterrupted(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// addPermissions adds the flag for directories that are shared with a group.
func addPermissions(c *cobra.Command, permissions *string) {
	c.Flags().StringVar(permissions, "data-dir-permissions", "owner", "as in tidemark serve: owner, or group for a directory that is shared with its group")
}

// groupAccess returns the value of --data-dir-permissions.
func groupAccess(permissions string) (bool, error) {
	if permissions != "owner" && permissions != "group" {
		return false, fmt.Errorf("--data-dir-permissions=%s: want owner or group", permissions)
	}
	return permissions == "group", nil
}
