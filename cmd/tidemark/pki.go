package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/datadir"
)

func newPKI() *cobra.Command {
	c := &cobra.Command{
		Use:   "pki",
		Short: "Copy certificates and keys to another server",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPKICopy())
	return c
}

func newPKICopy() *cobra.Command {
	return &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy the certificates and keys of a data directory",
		Long: `Copy gives the data directory TO the folder pki of the data directory FROM: the certificate
authority, the keys of service account tokens, and the administrator's token. Servers on one
etcd need the same ones, and so does a server that takes the place of another one. TO is made
if it does not exist. Only its owner can read it. Run the command as the user of the server.`,
		Example: `  # A second server on an etcd
  tidemark pki copy ./data ./data-b
  tidemark serve --etcd-servers=http://127.0.0.1:2379 --data-dir=./data-b --secure-port=6444`,
		Args: arguments([]string{"FROM", "TO"}, ""),
		RunE: func(c *cobra.Command, args []string) error {
			if err := datadir.CopyPKI(args[0], args[1]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "The data directory %s has the certificates and keys of %s.\n", args[1], args[0])
			return err
		},
	}
}
