package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/timeline"
	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
)

const (
	// forkTimeout bounds a request of the command.
	forkTimeout = time.Minute
	// maxForkResponse bounds a response, in bytes.
	maxForkResponse = 16 << 20
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
with --delete, or with the server. With --keep it is copied into the data directory of the
server, and is there after a restart.

The command writes a kubeconfig for the fork with the credentials of the current one.
Users have the permissions in the fork that they have in the server, until the fork
changes them.`,
		Example: `  # Try something, look at it, and throw it away
  tidemark fork --name=try
  kubectl --kubeconfig=try.kubeconfig delete namespace shop
  tidemark fork --delete=try

  # A fork of an earlier state: of a resource version, or of a time
  tidemark fork --name=before --at=-10m

  # A fork that survives restarts of the server
  tidemark fork --name=staging --keep

  # What there is
  tidemark fork --list`,
		Args: arguments(nil, ": --name has the name of a new fork"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return usageError{err}
			}
			return f.run(c.Context(), c.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", clientconfig.Usage)
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	flags.StringVar(&f.request.Name, "name", "", "name of the fork, a DNS label (default: a generated one)")
	flags.StringVar(&f.request.From, "from", "", "fork to fork (default: the server's own state)")
	flags.StringVar(&f.request.ResourceVersion, "at", "", "instant of the state that the fork begins with: a resource version, a time, or -10m (default: the newest state)")
	flags.StringSliceVar(&f.request.Controllers, "controllers", nil, "controllers of the fork, as in tidemark serve --controllers (default: those of the server)")
	flags.BoolVar(&f.request.Keep, "keep", false, "keep the fork in the data directory of the server, so that it survives restarts; all objects are copied")
	flags.StringVarP(&f.out, "output-kubeconfig", "o", "", "file to write the kubeconfig of the fork to; a file that exists is replaced only if it is that of a fork with the same address (default NAME.kubeconfig in the current directory)")
	flags.BoolVar(&f.list, "list", false, "list the forks")
	flags.StringVar(&f.delete, "delete", "", "delete the fork with this name")
	return c
}

// check returns an error for flags that contradict each other.
func (f *forkFlags) check() error {
	creates := f.request.Name != "" || f.request.From != "" || f.request.ResourceVersion != "" || f.request.Controllers != nil || f.request.Keep || f.out != ""
	if f.list && (creates || f.delete != "") || f.delete != "" && creates {
		return errors.New("--list, --delete and the flags of a new fork exclude each other")
	}
	if at := f.request.ResourceVersion; at != "" {
		if _, err := changes.ParseInstant(at, time.Now()); err != nil {
			return fmt.Errorf("--at: %w", err)
		}
	}
	return nil
}

func (f *forkFlags) run(ctx context.Context, out io.Writer) error {
	loaded := clientconfig.Load(f.kubeconfig, f.context)
	config, err := clientconfig.REST(loaded)
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
		return removeForkConfig(kubeconfigOf(f.delete), addressBelow(config.Host, "/fork/"+f.delete), out)
	}
	raw, err := loaded.RawConfig()
	if err != nil {
		return err
	}
	return f.create(ctx, config, &raw, out)
}

// create makes the fork, and writes its kubeconfig.
func (f *forkFlags) create(ctx context.Context, config *rest.Config, raw *clientcmdapi.Config, out io.Writer) error {
	if file := cmp.Or(f.out, kubeconfigOf(f.request.Name)); file != "" {
		address := ""
		if f.request.Name != "" {
			address = addressBelow(config.Host, "/fork/"+f.request.Name)
		}
		if err := replaceable(file, address); err != nil {
			return err
		}
	}
	if err := f.pin(ctx, config); err != nil {
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
	of := ""
	if !made.BaseTime.IsZero() {
		of = ", of " + made.BaseTime.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(out, "The fork %s begins with resource version %s%s. Its kubeconfig is %s:\n\n  kubectl --kubeconfig=%s get namespaces\n", made.Name, made.Base, of, path, path)
	return nil
}

// pin replaces the instant of --at by the resource version of its state.
func (f *forkFlags) pin(ctx context.Context, config *rest.Config) error {
	if f.request.ResourceVersion == "" {
		return nil
	}
	instant, err := changes.ParseInstant(f.request.ResourceVersion, time.Now())
	if err != nil {
		return err
	}
	f.request.ResourceVersion = ""
	if instant.Now {
		return nil
	}
	if f.request.From != "" {
		config = rest.CopyConfig(config)
		config.Host = addressBelow(config.Host, "/fork/"+url.PathEscape(f.request.From))
	}
	client, err := serverclient.New(config)
	if err != nil {
		return err
	}
	revision, err := (&timeline.Env{Server: client}).Pin(ctx, instant)
	if err != nil {
		return err
	}
	f.request.ResourceVersion = strconv.FormatUint(revision, 10)
	return nil
}

// kubeconfigOf is the default file of a fork's kubeconfig; empty: its name is not known yet.
func kubeconfigOf(name string) string {
	if name == "" {
		return ""
	}
	return name + ".kubeconfig"
}

// addressBelow returns the address of a path below the address of a server.
func addressBelow(host, path string) string { return strings.TrimSuffix(host, "/") + path }

// replaceable returns an error if the file exists, unless it is a kubeconfig with one cluster, that of the
// address: an earlier fork of the same name has left it.
func replaceable(path, address string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if c, err := clientcmd.LoadFromFile(path); err == nil && address != "" && len(c.Clusters) == 1 && len(c.Contexts) == 1 {
		for _, cluster := range c.Clusters {
			if cluster.Server == address {
				return nil
			}
		}
	}
	return fmt.Errorf("the file %s exists: name another one with --output-kubeconfig, or remove it", path)
}

// removeForkConfig removes the kubeconfig of a fork that was deleted, if the file is that of this fork.
func removeForkConfig(path, address string, out io.Writer) error {
	if _, err := os.Lstat(path); err != nil || replaceable(path, address) != nil {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("the kubeconfig of the fork is not removed: %w", err)
	}
	fmt.Fprintf(out, "Its kubeconfig %s is removed.\n", path)
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
		cluster.Server = addressBelow(cluster.Server, made.Path)
		if err := replaceable(path, cluster.Server); err != nil {
			return err
		}
		cluster.Extensions = nil // a file of the server's own is one that the server may replace
	}
	b, err := clientcmd.Write(*raw)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600)
}

func (f *forkFlags) printList(ctx context.Context, config *rest.Config, out io.Writer) error {
	var all forkapi.List
	if err := callForks(ctx, config, http.MethodGet, "", nil, &all); err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tFROM\tCREATED\tBASE\tBASE TIME\tRESOURCE VERSION\tBYTES\tKEPT\tPATH")
	for _, k := range all.Forks {
		bytes, kept := strconv.FormatInt(k.Bytes, 10), "no"
		if k.ResourceVersion == "" {
			bytes = "-"
		}
		if k.Kept {
			kept = "yes"
		}
		baseTime := "-"
		if !k.BaseTime.IsZero() {
			baseTime = k.BaseTime.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, cmp.Or(k.Parent, "-"), k.Created.UTC().Format(time.RFC3339), k.Base, baseTime, cmp.Or(k.ResourceVersion, "-"), bytes, kept, k.Path)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, k := range all.Forks {
		if k.Error != "" {
			fmt.Fprintf(out, "\nThe fork %s is not usable: %s\n", k.Name, oneLine(errors.New(k.Error)))
		}
	}
	return nil
}

// callForks sends a request about forks, and decodes the response.
func callForks(ctx context.Context, config *rest.Config, method, path string, request, into any) error {
	client, err := serverclient.New(config)
	if err != nil {
		return err
	}
	var body []byte
	if request != nil {
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, forkTimeout)
	defer cancel()
	response, err := client.Do(ctx, method, forkapi.Path+path, "application/json", body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if into == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxForkResponse)).Decode(into)
}
