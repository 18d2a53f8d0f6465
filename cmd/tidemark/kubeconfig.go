package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/cluster"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/pki"
)

type kubeconfigFlags struct {
	user, server string
	groups       []string
	expires      time.Duration
}

// loopbackName is the TLS server name for which a server always shows the certificate of its own authority.
const loopbackName = "apiserver-loopback-client"

func newKubeconfig() *cobra.Command {
	var f kubeconfigFlags
	c := &cobra.Command{
		Use:   "kubeconfig DIR",
		Short: "Print a kubeconfig with a client certificate for a user",
		Long: `Kubeconfig prints a kubeconfig for a user, with a client certificate that the certificate
authority of the data directory DIR signs. The server may be running or not; nothing is stored.
Run the command as the user of the server, on its machine. DIR may also be that of tidemark
cluster.

The user has the rights of its roles and bindings, and those of its groups. A member of the
group system:masters may do everything. A certificate cannot be revoked: it is valid until it
expires, or until the authority is replaced. Choose a short --expires, and bind roles to the
user rather than to groups of the certificate, because a binding can be deleted.`,
		Example: `  # For a day, with the right to read
  tidemark kubeconfig ./data --user=alice > alice.kubeconfig
  kubectl create clusterrolebinding alice --clusterrole=view --user=alice

  # For a year, with groups, for a server that others reach by a name of --tls-san
  tidemark kubeconfig ./data --user=bob --group=developers --group=oncall --expires=8760h --server=https://tidemark.example.com:6443`,
		Args: arguments([]string{"DIR"}, ""),
		RunE: func(c *cobra.Command, args []string) error { return f.run(args[0], time.Now(), c.OutOrStdout()) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.user, "user", "", "name of the user, the common name of the certificate; required")
	flags.StringArrayVar(&f.groups, "group", nil, "group of the user, an organization of the certificate; can be repeated")
	flags.DurationVar(&f.expires, "expires", 24*time.Hour, "how long the certificate is valid, from now on")
	flags.StringVar(&f.server, "server", "", "URL of the server (default: that of the file kubeconfig in DIR)")
	return c
}

func (f *kubeconfigFlags) run(dir string, now time.Time, out io.Writer) error {
	switch {
	case f.user == "":
		return usageError{errors.New("--user is missing: name the user of the certificate, such as --user=alice")}
	case slices.Contains(f.groups, ""):
		return usageError{errors.New("--group is empty: name a group, or leave it out")}
	case f.expires < time.Second:
		return usageError{fmt.Errorf("--expires=%v: want a second or more, such as 24h", f.expires)}
	}
	data, err := cluster.DataDir(dir)
	if err != nil {
		return err
	}
	issuer, err := pki.ReadIssuer(filepath.Join(data, "pki"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no certificate authority: name the directory of a server that was started, as in tidemark serve --data-dir, or of a cluster, as in tidemark cluster", data)
	}
	if err != nil {
		return err
	}
	if left := issuer.End().Sub(now); left < f.expires {
		if left <= 0 {
			return fmt.Errorf("the certificate authority of %s expired on %s: start the server, which renews it", dir, issuer.End().Format(time.DateOnly))
		}
		return usageError{fmt.Errorf("--expires=%v is longer than the certificate authority of %s is valid: want at most %v", f.expires, dir, left.Truncate(time.Hour))}
	}
	c, err := f.reach(dir)
	if err != nil {
		return err
	}
	c.User, c.CA = f.user, issuer.CertificatePEM()
	if c.Certificate, c.Key, err = issuer.IssueClient(f.user, f.groups, now, f.expires); err != nil {
		return err
	}
	_, err = out.Write(c.YAML())
	return err
}

// reach returns how clients reach the server whose kubeconfig is in a directory.
func (f *kubeconfigFlags) reach(dir string) (kubeconfig.Config, error) {
	if f.server != "" {
		if u, err := url.Parse(f.server); err != nil || u.Scheme != "https" || u.Host == "" {
			return kubeconfig.Config{}, usageError{fmt.Errorf("--server=%s: want a URL such as https://tidemark.example.com:6443", f.server)}
		}
		return kubeconfig.Config{Server: f.server, TLSServerName: loopbackName}, nil
	}
	c, err := kubeconfig.ReadServer(filepath.Join(dir, datadir.KubeconfigFile))
	if err != nil {
		return c, fmt.Errorf("the URL of the server is not known: %w; name it with --server", err)
	}
	return c, nil
}
