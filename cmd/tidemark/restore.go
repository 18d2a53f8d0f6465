package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/timeline"
	"github.com/tidemark-dev/tidemark/datadir"
)

// newRestore writes an older state of objects. It still is "backup restore" if its arguments are a file and a directory.
func newRestore() *cobra.Command {
	f, o := new(timelineFlags), timeline.RestoreOptions{}
	d := new(datadir.Dir)
	var permissions string
	var backup datadir.RestoreOptions
	c := &cobra.Command{
		Use:   "restore RESOURCE/NAME... --at=INSTANT",
		Short: "Write an older state of an object",
		Long: `Restore writes the metadata and the spec that objects had at an instant. It is an ordinary
update: with the rights, admission and validation of now. It fails if an object changes in
between, and does not touch its status.

` + instantUsage + `

The command backup restore makes a data directory of a backup.`,
		Example: `  tidemark restore deploy/web --at=-10m
  tidemark restore deploy/web --at=81200 --dry-run`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("RESOURCE/NAME is missing, such as deploy/web")}
			}
			if o.At == "" && len(args) != 2 {
				return usageError{errors.New("--at is missing: name the instant of the state, such as --at=-10m")}
			}
			if o.At != "" {
				return f.run(c, func(ctx context.Context, e *timeline.Env) error { return e.Restore(ctx, args, o) })
			}
			if _, err := os.Stat(args[0]); errors.Is(err, fs.ErrNotExist) && args[0] != "-" && !backup.KeepHistory {
				return usageError{fmt.Errorf("--at is missing: name the instant of the state, such as --at=-10m; and there is no file %s to make a data directory of, for which the command is: tidemark backup restore", args[0])}
			}
			var err error
			d.Path = args[1]
			if d.GroupAccess, err = groupAccess(permissions); err != nil {
				return usageError{err}
			}
			fmt.Fprintln(c.ErrOrStderr(), "Warning: tidemark restore FILE DIR is now tidemark backup restore FILE DIR; this form will be removed.")
			ctx, stop := untilInterrupted(c)
			defer stop()
			return restoreBackup(ctx, args[0], d, backup, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	f.add(c)
	flags.StringVar(&o.At, "at", "", "instant of the state to write; required")
	flags.BoolVar(&o.DryRun, "dry-run", false, "let the server try it, print the difference, and change nothing")
	flags.BoolVar(&backup.KeepHistory, "keep-history", false, "as in tidemark backup restore")
	addPermissions(c, &permissions)
	for _, name := range []string{"keep-history", "data-dir-permissions"} {
		if err := flags.MarkHidden(name); err != nil {
			panic(err) // there is no such flag
		}
	}
	return c
}
