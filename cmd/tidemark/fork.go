package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark/internal/forkapi"
)

const (
	// forkTimeout bounds a request of the command.
	forkTimeout = time.Minute
	// maxForkAnswer bounds an answer, in bytes.
	maxForkAnswer = 16 << 20
)

// forkFlags are the flags of fork.
type forkFlags struct {
	kubeconfig, context string
	request             forkapi.Request
	out                 string
	list                bool
	delete              string
}

func newFork() *cobra.Command {
	f := new(forkFlags)
	c := &cobra.Command{
		Use:   "fork",
		Short: "Fork the state of a running server",
		Long: `Fork makes a world of its own inside a running server, which begins with the state of
the server. It shares all objects, so that it takes about a millisecond however many there
are. Then both change alone. The fork is at the path /fork/NAME of the server. It ends
with --delete, or with the server.

The command writes a kubeconfig for the fork with the credentials of the current one.
Users have the permissions in the fork that they have in the server, until the fork
changes them.`,
		Example: `  # Try something, look at it, and throw it away
  tidemark fork --name=try
  kubectl --kubeconfig=try.kubeconfig delete namespace shop
  tidemark fork --delete=try

  # A fork of the state at a resource version
  tidemark fork --name=yesterday --at=1790123456789012

  # What there is
  tidemark fork --list`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return usageError{err}
			}
			return f.run(c.Context(), c.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the server (default: the one that kubectl uses)")
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	flags.StringVar(&f.request.Name, "name", "", "name of the fork, a DNS label (default: a generated one)")
	flags.StringVar(&f.request.From, "from", "", "fork to fork (default: the server's own state)")
	flags.StringVar(&f.request.ResourceVersion, "at", "", "resource version of the state that the fork begins with (default: the newest)")
	flags.StringSliceVar(&f.request.Controllers, "controllers", nil, "controllers of the fork, as in tidemark serve --controllers (default: those of the server)")
	flags.StringVarP(&f.out, "output-kubeconfig", "o", "", "file to write the kubeconfig of the fork to; it must not exist (default NAME.kubeconfig in the current directory)")
	flags.BoolVar(&f.list, "list", false, "list the forks")
	flags.StringVar(&f.delete, "delete", "", "delete the fork with this name")
	return c
}

// check returns an error for flags that contradict each other.
func (f *forkFlags) check() error {
	creates := f.request.Name != "" || f.request.From != "" || f.request.ResourceVersion != "" || f.request.Controllers != nil || f.out != ""
	if f.list && (creates || f.delete != "") || f.delete != "" && creates {
		return errors.New("--list, --delete and the flags of a new fork exclude each other")
	}
	return nil
}

func (f *forkFlags) run(ctx context.Context, out io.Writer) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
	config, err := loaded.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("there is no kubeconfig, or none with a cluster: name one with --kubeconfig or in $KUBECONFIG")
	}
	if err != nil {
		return err
	}
	switch {
	case f.list:
		return f.printList(ctx, config, out)
	case f.delete != "":
		if err := callForks(ctx, config, http.MethodDelete, "/"+url.PathEscape(f.delete), nil, nil); err != nil {
			return err
		}
		fmt.Fprintf(out, "The fork %s is deleted.\n", f.delete)
		return nil
	}
	raw, err := loaded.RawConfig()
	if err != nil {
		return err
	}
	return f.create(ctx, config, &raw, out)
}

// create makes the fork, and writes its kubeconfig.
func (f *forkFlags) create(ctx context.Context, config *rest.Config, raw *clientcmdapi.Config, out io.Writer) error {
	if err := absent(cmp.Or(f.out, kubeconfigOf(f.request.Name))); err != nil {
		return err
	}
	var made forkapi.Fork
	if err := callForks(ctx, config, http.MethodPost, "", &f.request, &made); err != nil {
		return err
	}
	path := cmp.Or(f.out, kubeconfigOf(made.Name))
	if err := writeForkConfig(path, raw, f.context, made); err != nil {
		return fmt.Errorf("the fork %s is made, but its kubeconfig is not written: %w", made.Name, err)
	}
	fmt.Fprintf(out, "The fork %s begins with resource version %s. Its kubeconfig is %s:\n\n  kubectl --kubeconfig=%s get namespaces\n", made.Name, made.Base, path, path)
	return nil
}

// kubeconfigOf is the default file of a fork's kubeconfig; empty: its name is not known yet.
func kubeconfigOf(name string) string {
	if name == "" {
		return ""
	}
	return name + ".kubeconfig"
}

// absent returns an error if the file exists.
func absent(path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("the file %s exists: name another one with --output-kubeconfig, or remove it", path)
	}
	return nil
}

// writeForkConfig writes the current context of a kubeconfig with the path of the fork in its server's
// address.
func writeForkConfig(path string, raw *clientcmdapi.Config, context string, made forkapi.Fork) error {
	raw = raw.DeepCopy()
	if context != "" {
		raw.CurrentContext = context
	}
	if err := clientcmdapi.MinifyConfig(raw); err != nil {
		return err
	}
	if err := clientcmdapi.FlattenConfig(raw); err != nil {
		return err
	}
	for _, cluster := range raw.Clusters {
		cluster.Server = strings.TrimSuffix(cluster.Server, "/") + made.Path
		cluster.Extensions = nil // a file of the server's own is one that the server may replace
	}
	b, err := clientcmd.Write(*raw)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	return errors.Join(err, file.Close())
}

func (f *forkFlags) printList(ctx context.Context, config *rest.Config, out io.Writer) error {
	var all forkapi.List
	if err := callForks(ctx, config, http.MethodGet, "", nil, &all); err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tFROM\tCREATED\tBASE\tRESOURCE VERSION\tBYTES\tPATH")
	for _, k := range all.Forks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", k.Name, cmp.Or(k.Parent, "-"), k.Created.UTC().Format(time.RFC3339), k.Base, k.ResourceVersion, k.Bytes, k.Path)
	}
	return t.Flush()
}

// callForks sends a request about forks, and decodes the answer.
func callForks(ctx context.Context, config *rest.Config, method, path string, request, into any) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, forkTimeout)
	defer cancel()
	var body bytes.Buffer
	if request != nil {
		if err := json.NewEncoder(&body).Encode(request); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(host.String(), "/")+forkapi.Path+path, &body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxForkAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		var s metav1.Status
		if json.Unmarshal(b, &s) == nil && s.Message != "" {
			return errors.New(s.Message)
		}
		return fmt.Errorf("%s answers %s %s with %s: it has no forks, or is no tidemark", host, method, forkapi.Path, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}
