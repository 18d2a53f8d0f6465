package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
	"github.com/tidemark-dev/tidemark/internal/statusapi"
)

// statusFlags are the flags of status.
type statusFlags struct {
	kubeconfig, context, output string
}

func newStatus() *cobra.Command {
	f := new(statusFlags)
	var permissions string
	c := &cobra.Command{
		Use:   "status [DIR]",
		Short: "Show what a server has and how it is",
		Long: `Status shows the addresses, version, objects, history, disk, backups and forks of a running
server, and what it is among others: a leader or a follower, with its lag.

The user of the kubeconfig needs the permission to get the path /status, which cluster-admin
has. With DIR, status describes a data directory that no server uses. It reads and checks
all of it.`,
		Example: `  tidemark status

  # For programs
  tidemark status -o json

  # A server that is stopped
  tidemark status ./data`,
		Args: atMostOne("[DIR]"),
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, f.output) {
				return usageError{fmt.Errorf("--output=%q is not known: want json or yaml, or nothing for a table", f.output)}
			}
			ctx, stop := untilInterrupted(c)
			defer stop()
			var s statusapi.Status
			group, err := groupAccess(permissions)
			switch {
			case err != nil:
				return usageError{err}
			case len(args) == 0:
				err = f.fetch(ctx, &s)
			default:
				s, err = stoppedStatus(ctx, &datadir.Dir{Path: args[0], GroupAccess: group})
			}
			if err != nil {
				return err
			}
			return f.print(c.OutOrStdout(), &s)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", clientconfig.Usage)
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	flags.StringVarP(&f.output, "output", "o", "", "json or yaml for programs; a table otherwise")
	addPermissions(c, &permissions)
	return c
}

// fetch asks a running server.
func (f *statusFlags) fetch(ctx context.Context, s *statusapi.Status) error {
	config, err := clientconfig.REST(clientconfig.Load(f.kubeconfig, f.context))
	if err != nil {
		return err
	}
	client, err := serverclient.New(config)
	if err != nil {
		return err
	}
	resp, err := client.Do(ctx, http.MethodGet, statusapi.Path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(s)
}

// stoppedStatus describes a data directory that no server uses.
func stoppedStatus(ctx context.Context, d *datadir.Dir) (statusapi.Status, error) {
	contents, err := d.Check(ctx)
	if errors.Is(err, datadir.ErrInUse) {
		return statusapi.Status{}, fmt.Errorf("%w, or ask it: tidemark status --kubeconfig=%s", err, filepath.Join(d.Path, datadir.KubeconfigFile))
	}
	if err != nil {
		return statusapi.Status{}, err
	}
	path, err := filepath.Abs(d.Path)
	if err != nil {
		return statusapi.Status{}, err
	}
	s := statusapi.Status{
		Role:    statusapi.Stopped,
		Objects: statusapi.Objects{Count: int(contents.Log.Objects)},
		History: statusapi.History{
			Oldest: statusapi.Revision{ResourceVersion: contents.Log.OldestResourceVersion},
			Newest: statusapi.Revision{ResourceVersion: contents.Log.ResourceVersion, Time: contents.Log.Changed},
		},
		Storage: statusapi.Storage{Kind: statusapi.Directory, Path: path},
		Forks:   []statusapi.Fork{},
	}
	if s.MovedTo, err = d.MovedTo(); err != nil {
		return statusapi.Status{}, err
	}
	if of, err := d.CopyOf(); err != nil {
		return statusapi.Status{}, err
	} else if of != "" {
		s.Follows = &statusapi.Follows{URL: of}
	}
	err = filepath.WalkDir(filepath.Join(path, "log"), func(_ string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			s.Storage.LogBytes += info.Size()
		}
		return err
	})
	for _, name := range slices.Sorted(maps.Keys(contents.Forks)) {
		s.Forks = append(s.Forks, forkapi.Fork{Name: name, Kept: true, ResourceVersion: fmt.Sprint(contents.Forks[name].ResourceVersion)})
	}
	return s, err
}

// print prints a status in the format of the flag --output.
func (f *statusFlags) print(w io.Writer, s *statusapi.Status) error {
	switch f.output {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	case "yaml":
		text, err := yaml.Marshal(s)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	for _, row := range statusRows(s, time.Now()) {
		if _, err := fmt.Fprintf(w, "%-10s %s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	return nil
}

// statusRows returns the lines of the table: a heading and a value.
func statusRows(s *statusapi.Status, now time.Time) (rows [][2]string) {
	add := func(head, format string, a ...any) {
		rows = append(rows, [2]string{head, fmt.Sprintf(format, a...)})
	}
	if len(s.Addresses) > 0 {
		add("address", "%s", strings.Join(s.Addresses, ", "))
	}
	if s.Version != "" {
		add("version", "%s, serving the API of Kubernetes %s, since %s", s.Version, s.Kubernetes, moment(s.Started, now))
	}
	add("role", "%s", s.Role)
	if s.MovedTo != "" {
		add("moved", "to %s; servers refuse the directory", s.MovedTo)
	}
	if l := s.Follows; l != nil && s.Role == statusapi.Stopped {
		add("copy of", "%s", l.URL)
	} else if l != nil {
		state := "connected"
		if !l.Connected {
			state = "not connected"
		}
		add("follows", "%s, %s, %.1f s and %d changes behind", l.URL, state, l.LagSeconds, l.LagRevisions)
	}
	for _, one := range s.Servers {
		marks := ""
		if one.Leader {
			marks += ", leads"
		}
		if one.Self {
			marks += ", this one"
		}
		add("server", "%s at %s%s, renewed %s", one.Identity, one.Address, marks, moment(one.Renewed, now))
	}
	objects := fmt.Sprintf("%d", s.Objects.Count)
	if s.Objects.Resources > 0 {
		objects += fmt.Sprintf(" of %d resources, %s in memory", s.Objects.Resources, mebibytes(s.Objects.MemoryBytes))
	}
	add("objects", "%s", objects)
	add("history", "resource versions %d (%s) to %d (%s)",
		s.History.Oldest.ResourceVersion, moment(s.History.Oldest.Time, now), s.History.Newest.ResourceVersion, moment(s.History.Newest.Time, now))
	storage := s.Storage.Kind
	if s.Storage.Path != "" {
		storage += " " + s.Storage.Path
	}
	if s.Storage.LogBytes > 0 {
		storage += ", " + mebibytes(s.Storage.LogBytes)
	}
	if s.Storage.FreeBytes > 0 {
		storage += ", " + mebibytes(s.Storage.FreeBytes) + " free"
	}
	add("storage", "%s", storage)
	for _, m := range s.Storage.Members {
		switch {
		case m.Version == "":
			add("etcd", "%s: %s", m.URL, m.Error)
		default:
			leads := ""
			if m.Leader {
				leads = ", leads"
			}
			if m.Error != "" {
				leads += ", " + m.Error
			}
			add("etcd", "%s, version %s, %s%s", m.URL, m.Version, mebibytes(m.Bytes), leads)
		}
	}
	rows = append(rows, backupRows(s, now)...)
	add("forks", "%d", len(s.Forks))
	for _, fork := range s.Forks {
		kept := ""
		if fork.Kept {
			kept = ", kept"
		}
		if fork.Error != "" {
			kept += ", " + fork.Error
		}
		add("fork", "%s%s", fork.Name, kept)
	}
	return rows
}

func backupRows(s *statusapi.Status, now time.Time) (rows [][2]string) {
	b := s.Backups
	if b == nil {
		if s.Role == statusapi.Single {
			rows = append(rows, [2]string{"backups", "no schedule"})
		}
		return rows
	}
	last := "none yet"
	if l := b.Last; l != nil {
		last = fmt.Sprintf("last %s, %s, %s", l.Name, mebibytes(l.Bytes), moment(l.Time, now))
	}
	rows = append(rows, [2]string{"backups", fmt.Sprintf("%s in %s; %d kept, %s; next %s", last, b.Place, b.Kept, mebibytes(b.KeptBytes), moment(b.Next, now))})
	if b.Failure != nil {
		rows = append(rows, [2]string{"", fmt.Sprintf("FAILED %s: %s", moment(b.Failure.Time, now), oneLine(errors.New(b.Failure.Error)))})
	}
	return rows
}

// moment shows a time, and how long ago it was or will be.
func moment(t, now time.Time) string {
	if t.IsZero() {
		return "time unknown"
	}
	at := t.Local().Format(time.RFC3339)
	d := now.Sub(t).Round(time.Second)
	if d < 0 {
		return fmt.Sprintf("%s, in %v", at, -d)
	}
	return fmt.Sprintf("%s, %v ago", at, d)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
