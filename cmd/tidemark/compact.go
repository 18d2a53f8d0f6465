package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/datadir"
)

func newCompact() *cobra.Command {
	d, o := new(datadir.Dir), datadir.CompactOptions{}
	var permissions string
	c := &cobra.Command{
		Use:   "compact DIR",
		Short: "Erase the history of a data directory permanently",
		Long: `Compact drops the history of the data directory DIR, and of its kept forks, and writes all
files of their logs anew. Then no file of the directory has bytes of objects that were
deleted, or of older versions of others, such as an old password in a Secret. The objects
stay as they are. Clients that continue a watch or a list from before get 410, and list again.

No server uses the directory meanwhile. Compact needs as much free space as the log takes, and
may be repeated after an error. Backups, followers' copies, audit logs and free blocks of the
disk are not its business.`,
		Example: `  tidemark compact ~/.local/share/tidemark

  # Remove only what the history no longer has, after a time with --history-retention=10m
  tidemark compact --keep-history ~/.local/share/tidemark`,
		Args: arguments([]string{"DIR"}, ""),
		RunE: func(c *cobra.Command, args []string) (err error) {
			d.Path = args[0]
			if d.GroupAccess, err = groupAccess(permissions); err != nil {
				return usageError{err}
			}
			contents, left, err := d.Compact(c.Context(), o)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			fmt.Fprintf(out, "No file of the data directory %s has anything that is gone.\n", d.Path)
			describeContents(out, contents)
			for _, dir := range left {
				fmt.Fprintf(c.ErrOrStderr(), "Warning: %s has what a start set aside after a loss of data, and was not changed: remove it, too.\n", dir)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&o.KeepHistory, "keep-history", false, "keep the history, and remove only what has left it already")
	addPermissions(c, &permissions)
	return c
}
