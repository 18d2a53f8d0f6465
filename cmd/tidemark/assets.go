package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/assets"
	"github.com/tidemark-dev/tidemark/internal/features"
)

// assetsFlags are the flags of envtest-assets.
type assetsFlags struct {
	archive           bool
	url               string
	kubectl           string
	program, platform string
	kubernetes        string
}

func newAssets() *cobra.Command {
	f := new(assetsFlags)
	c := &cobra.Command{
		Use:   "envtest-assets DIR",
		Short: "Write the programs that envtest and other test harnesses start",
		Long: `Envtest-assets writes the programs kube-apiserver, etcd and kubectl to a directory. Test
suites that use envtest of controller-runtime, and other harnesses that start these
programs, then run on Tidemark unchanged. It prints the line that a shell needs.

kube-apiserver and etcd are Tidemark: the name by which it is called decides. As
kube-apiserver it accepts that program's flags. With the etcd beside it, which only serves
health checks, it keeps its objects in memory. It runs no controllers of
kube-controller-manager: TIDEMARK_CONTROLLERS selects controllers as --controllers of
serve does. TIDEMARK_SERVE_CHANGES=true serves the history of objects. With
TIDEMARK_EXIT_WITH_PARENT=true, both end with the process that started them. kubectl is
a copy of the one in PATH, if there is one.

With --kubernetes-version, kube-apiserver emulates a minor version of Kubernetes, as with
--emulated-version of serve. Directories of several versions let one test suite run
against each of them.

With --archive, it writes an archive and adds it to the index envtest-releases.yaml:
what setup-envtest downloads. Publish the directory at the address of --url.`,
		Example: `  # Run a test suite on Tidemark
  eval "$(tidemark envtest-assets ./bin/tidemark)"
  go test ./...

  # With all controllers
  TIDEMARK_CONTROLLERS='*' go test ./...

  # On Kubernetes 1.35
  eval "$(tidemark envtest-assets ./bin/tidemark-1.35 --kubernetes-version=1.35)"

  # Archives for setup-envtest
  tidemark envtest-assets --archive --url=https://example.com/assets ./public
  setup-envtest use --index=https://example.com/assets/envtest-releases.yaml -p path`,
		Args: arguments([]string{"DIR"}, ""),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return usageError{err}
			}
			return f.write(args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.kubectl, "kubectl", "", "kubectl to copy (default: the one in PATH, if there is one)")
	flags.BoolVar(&f.archive, "archive", false, "write an archive, and add it to the index envtest-releases.yaml in DIR")
	flags.StringVar(&f.url, "url", "", "address at which DIR will be published, for the index")
	flags.StringVar(&f.program, "program", "", "tidemark to copy, for archives of other platforms (default: this program)")
	flags.StringVar(&f.kubernetes, "kubernetes-version", "", "minor version of Kubernetes that kube-apiserver emulates, such as 1.36 (default: the newest)")
	flags.StringVar(&f.platform, "platform", runtime.GOOS+"/"+runtime.GOARCH, "platform of --program, OS/ARCH")
	return c
}

func (f *assetsFlags) check() error {
	system, arch, ok := strings.Cut(f.platform, "/")
	switch {
	case f.archive && f.url == "":
		return errors.New("--archive needs --url, the address at which the directory will be published")
	case !f.archive && f.url != "":
		return errors.New("--url is for --archive")
	case !ok || system == "" || arch == "" || strings.ContainsAny(arch, "/-"):
		return fmt.Errorf("--platform=%s: want OS/ARCH, such as linux/amd64", f.platform)
	case f.kubernetes != "" && f.version() == nil:
		_, err := features.Resolve(features.Choice{Emulated: f.kubernetes})
		return fmt.Errorf("--kubernetes-version: %w", err)
	case f.foreign() && f.program == "":
		return fmt.Errorf("--platform=%s needs --program: this program is for %s/%s", f.platform, runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

// version returns the version that kube-apiserver emulates, nil if it is not known.
func (f *assetsFlags) version() *features.Profile {
	p, err := features.Resolve(features.Choice{Emulated: f.kubernetes})
	if err != nil {
		return nil
	}
	return p
}

// foreign reports whether the programs are for another platform.
func (f *assetsFlags) foreign() bool { return f.platform != runtime.GOOS+"/"+runtime.GOARCH }

func (f *assetsFlags) write(dir string, stdout, stderr io.Writer) error {
	system, arch, _ := strings.Cut(f.platform, "/")
	files := assets.Files{Program: f.program, Kubectl: f.kubectl, Windows: system == "windows"}
	version := readVersion().Kubernetes
	if f.kubernetes != "" {
		files.Emulated = fmt.Sprintf("1.%d", f.version().Emulated)
		if files.Emulated != features.Newest() {
			version = "v" + files.Emulated + ".0" // setup-envtest chooses by it
		}
	}
	var err error
	if files.Program == "" {
		if files.Program, err = os.Executable(); err != nil {
			return err
		}
	}
	if files.Kubectl == "" && !f.foreign() {
		files.Kubectl, _ = exec.LookPath("kubectl") // empty: there is none
	}
	if files.Kubectl == "" {
		fmt.Fprintln(stderr, "No kubectl was found, so none is written. Few suites need it; name one with --kubectl.")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if !f.archive {
		if err := assets.Write(dir, files); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "export KUBEBUILDER_ASSETS="+shellQuote(dir))
		return nil
	}
	path, err := assets.Archive(dir, assets.Release{Files: files, Version: version, OS: system, Arch: arch, URL: f.url})
	if err == nil {
		fmt.Fprintln(stdout, path)
	}
	return err
}
