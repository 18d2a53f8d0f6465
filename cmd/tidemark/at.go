package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/timeline"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/changes"
)

// exitStatus is the exit code of a command that says more by it than that it failed; err may be nil.
type exitStatus struct {
	code int
	err  error
}

// Error implements error.
func (e exitStatus) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the error.
func (e exitStatus) Unwrap() error { return e.err }

// runAt runs a command with the kubeconfig of an instant.
func (f *timelineFlags) runAt(c *cobra.Command, text string, command []string) error {
	instant, err := changes.ParseInstant(text, time.Now())
	if err != nil {
		return usageError{err}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	loaded := clientconfig.Load(f.kubeconfig, f.context)
	if _, err := clientconfig.REST(loaded); err != nil {
		return err
	}
	raw, err := loaded.RawConfig()
	if err != nil {
		return err
	}
	below := ""
	if !instant.Now {
		e, end, err := f.env(c.Context(), c)
		if err != nil {
			return err
		}
		revision, err := e.Pin(c.Context(), instant) // all requests of the command see the same state
		end()
		if err != nil {
			return err
		}
		below = changes.AtPrefix + strconv.FormatUint(revision, 10)
	}
	kubeconfig, err := kubeconfigBelow(&raw, f.context, below)
	if err != nil {
		return err
	}
	dir, err := temporaryDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, datadir.KubeconfigFile)
	if err := atomicfile.Write(file, kubeconfig, 0o600); err != nil {
		return err
	}
	cmd := exec.Command(path, command[1:]...)
	cmd.Args[0] = command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
	cmd.Env = append(os.Environ(), clientcmd.RecommendedConfigPathEnvVar+"="+file)
	return runChild(c.Context(), cmd)
}

// kubeconfigBelow returns the current context of a kubeconfig with a path below the address of its server.
func kubeconfigBelow(raw *clientcmdapi.Config, context, path string) ([]byte, error) {
	raw = raw.DeepCopy()
	if context != "" {
		raw.CurrentContext = context
	}
	if err := clientcmdapi.MinifyConfig(raw); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(raw); err != nil {
		return nil, err
	}
	for _, cluster := range raw.Clusters {
		server, _ := timeline.Outside(cluster.Server) // inside another tidemark at, the inner instant counts
		cluster.Server = addressBelow(server, path)
		cluster.Extensions = nil // a file of the server's own is one that the server may replace
	}
	return clientcmd.Write(*raw)
}

// runChild runs a command to its end, and passes signals to it.
func runChild(ctx context.Context, cmd *exec.Cmd) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	// A terminal sends its signals to the command as well.
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	done := ctx.Done()
	for {
		select {
		case s := <-signals:
			if s != os.Interrupt || !terminal {
				cmd.Process.Signal(s)
			}
		case <-done:
			done = nil
			cmd.Process.Signal(os.Interrupt)
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				return err
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return exitStatus{128 + int(status.Signal()), nil}
			}
			return exitStatus{exit.ExitCode(), nil}
		}
	}
}
