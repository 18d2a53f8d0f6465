package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/timeline"
	"github.com/tidemark-dev/tidemark/internal/dump"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
)

// instantUsage is the help for the values of instants.
const instantUsage = `An instant is a resource version, a time of RFC 3339, -10m (ten minutes ago), -1d, 10:42,
"yesterday 10:42", a time as the table of history shows it, or now. Times are those of the
local zone. A time means the newest change not after it.`

// timelineFlags are the flags of all commands about the past.
type timelineFlags struct {
	kubeconfig, context, namespace string
	dataDir                        string
	permissions, encryption        string // of dataDir
}

func (f *timelineFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace (default: that of the kubeconfig's context)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", clientconfig.Usage)
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	c.ValidArgsFunction = f.complete
}

// addDir adds the flags for a directory that no server uses.
func (f *timelineFlags) addDir(c *cobra.Command) {
	c.Flags().StringVar(&f.dataDir, "data-dir", "", "data directory that no server uses, instead of a server")
	addPermissions(c, &f.permissions)
	c.Flags().StringVar(&f.encryption, "encryption-provider-config", "", "as in tidemark serve, for --data-dir")
	c.MarkFlagsMutuallyExclusive("data-dir", "kubeconfig")
	c.MarkFlagsMutuallyExclusive("data-dir", "context")
}

// env returns what a command needs. The caller calls end.
func (f *timelineFlags) env(ctx context.Context, c *cobra.Command) (e *timeline.Env, end func(), err error) {
	e = &timeline.Env{UserAgent: "tidemark/" + ownVersion(), Now: time.Now(), Out: c.OutOrStdout(), Color: isTerminal(c.OutOrStdout()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		Progress: progress.Progress{W: c.ErrOrStderr(), Terminal: isTerminal(c.ErrOrStderr())}}
	if file, ok := e.Out.(*os.File); ok && isTerminal(e.Out) {
		e.Width, _, _ = term.GetSize(int(file.Fd()))
	}
	end = func() {}
	if f.dataDir != "" && dump.Is(f.dataDir) {
		return nil, nil, fmt.Errorf("%s is the dump of a test and not a data directory: its changes are the lines of %s, and \"tidemark serve %s --at REVISION\" opens the state at any of them",
			f.dataDir, dump.HistoryFile, f.dataDir)
	}
	if f.dataDir != "" {
		config, stop, err := f.openDir(ctx)
		if err != nil {
			return nil, nil, err
		}
		e.Namespace = "default"
		if f.namespace != "" {
			e.Namespace = f.namespace
		}
		e.Server, err = serverclient.New(config)
		return e, stop, err
	}
	loaded := clientconfig.Load(f.kubeconfig, f.context)
	config, err := clientconfig.REST(loaded)
	if err != nil {
		return nil, nil, err
	}
	if e.Namespace = f.namespace; e.Namespace == "" {
		if e.Namespace, _, err = loaded.Namespace(); err != nil {
			return nil, nil, err
		}
	}
	e.Server, err = serverclient.New(config)
	return e, end, err
}

// runTimeline runs a command about the past: with its context, and its errors as exit codes.
func (f *timelineFlags) run(c *cobra.Command, do func(ctx context.Context, e *timeline.Env) error) error {
	ctx, stop := untilInterrupted(c)
	defer stop()
	e, end, err := f.env(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	err = do(ctx, e)
	var usage timeline.UsageError
	if errors.As(err, &usage) {
		return usageError{err}
	}
	return err
}

// paged lets the output go through a pager if it is a terminal.
func paged(c *cobra.Command, e *timeline.Env, do func() error) error {
	file, ok := e.Out.(*os.File)
	if !ok || !isTerminal(e.Out) {
		return do()
	}
	out, wait := timeline.Page(file, c.ErrOrStderr(), os.Getenv, os.LookupEnv)
	if out != io.Writer(file) {
		e.Progress.Terminal = false // the pager has the terminal
	}
	e.Out = out
	err := do()
	wait()
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) { // the user left the pager
		return nil
	}
	return err
}

func newHistory() *cobra.Command {
	f, o := new(timelineFlags), timeline.HistoryOptions{}
	c := &cobra.Command{
		Use:   "history [RESOURCE[/NAME]...]",
		Short: "Show the changes of objects: when, who, what",
		Long: `History prints the changes of an object, of all objects of a resource, of a namespace, or with
-A of everything, newest first in one order over all kinds. Deleted objects have their
history, too. Nothing is left out by default; --exclude and --exclude-server leave out what
drowns the rest.

` + instantUsage + `

It needs the rights to get an object, or to list or watch a resource: of today. The history
of a server goes back as far as its flags --history-retention and --history-max-disk-bytes
say. On a terminal, TIDEMARK_PAGER or PAGER shows the output (TIDEMARK_PAGER=cat: no pager), and
rows that are too long are folded; no name is cut. In a pipe, each change is one line.`,
		Example: `  # Who scaled it?
  tidemark history deploy/web --since=1h --field=spec.replicas

  # Everything that alice did since half past ten
  tidemark history -A --by=alice --since=10:30

  # Everything but heartbeats and what the server did by itself
  tidemark history -A --exclude=leases,events --exclude-server

  # Follow the changes of a namespace, for a program
  tidemark history -n shop --watch -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c, func(ctx context.Context, e *timeline.Env) error {
				if o.Watch {
					return e.History(ctx, args, o)
				}
				return paged(c, e, func() error { return e.History(ctx, args, o) })
			})
		},
	}
	flags := c.Flags()
	f.add(c)
	flags.BoolVarP(&o.All, "all-namespaces", "A", false, "of all namespaces, and of resources without one")
	flags.StringVarP(&o.Labels, "selector", "l", "", "label selector, which the object matches before or after the change")
	flags.StringVar(&o.Since, "since", "", "instant of the first changes, such as 1h or 10:30; a resource version is exclusive (default: as far back as the history goes)")
	flags.StringVar(&o.Until, "until", "", "instant of the last changes, inclusive (default: now)")
	flags.StringVar(&o.By, "by", "", "user that made the change, or that impersonated the user")
	flags.StringVar(&o.Verb, "verb", "", "verb of the change: create, update, patch, apply, delete or deletecollection")
	flags.StringSliceVar(&o.Exclude, "exclude", nil, "resources to leave out, such as leases,events")
	flags.BoolVar(&o.ExcludeServer, "exclude-server", false, "leave out what the server did by itself, such as its first objects")
	flags.StringVar(&o.Field, "field", "", "field that changed, or that has one below it, such as spec.replicas or spec.template.spec.containers[name=app].image")
	flags.StringVarP(&o.Output, "output", "o", "", "wide, yaml, json or name; a table otherwise")
	flags.BoolVarP(&o.Watch, "watch", "w", false, "go on with new changes, oldest first")
	flags.BoolVar(&o.Reverse, "reverse", false, "print the oldest change first")
	flags.IntVar(&o.Limit, "limit", 0, "the most changes to print; 0 for all")
	f.addDir(c)
	completeFlag(c, "output", timeline.Outputs...)
	completeFlag(c, "verb", timeline.Verbs...)
	return c
}

func newDiff() *cobra.Command {
	f, o := new(timelineFlags), timeline.DiffOptions{}
	c := &cobra.Command{
		Use:   "diff [RESOURCE[/NAME]...] --from=INSTANT",
		Short: "Show the difference between two states",
		Long: `Diff compares the states of two instants: of objects, of a resource, of a namespace, or with
-A of everything. It prints YAML as diff -u does, or as the command in KUBECTL_EXTERNAL_DIFF
prints it. The data of Secrets is masked.

The exit code is 0 if the states are equal, 1 if they differ, and above 1 after an error.

` + instantUsage,
		Example: `  tidemark diff deploy/web --from=-10m

  # What happened in a namespace between two changes
  tidemark diff -n shop --from=81200 --to=81234

  KUBECTL_EXTERNAL_DIFF="dyff between" tidemark diff -A --from=10:30`,
		RunE: func(c *cobra.Command, args []string) error {
			o.External, o.Err = os.Getenv("KUBECTL_EXTERNAL_DIFF"), c.ErrOrStderr()
			if strings.TrimSpace(o.External) == "" {
				o.External = ""
			}
			differs := false
			err := f.run(c, func(ctx context.Context, e *timeline.Env) error {
				return paged(c, e, func() (err error) {
					differs, err = e.Diff(ctx, args, o)
					return err
				})
			})
			switch {
			case err != nil:
				return exitStatus{exitUsage, err}
			case differs:
				return exitStatus{exitFailed, nil}
			}
			return nil
		},
	}
	flags := c.Flags()
	f.add(c)
	flags.BoolVarP(&o.All, "all-namespaces", "A", false, "of all namespaces, and of resources without one")
	flags.StringVarP(&o.Labels, "selector", "l", "", "label selector, which the object matches before or after a change")
	flags.StringVar(&o.From, "from", "", "instant of the first state; required")
	flags.StringVar(&o.To, "to", "now", "instant of the second state")
	flags.StringVarP(&o.Output, "output", "o", "", "json for the list of fields; YAML otherwise")
	flags.BoolVar(&o.Managed, "show-managed-fields", false, "with managed fields, resource version and generation")
	f.addDir(c)
	completeFlag(c, "output", "json")
	return c
}

func newBlame() *cobra.Command {
	f, o := new(timelineFlags), timeline.BlameOptions{}
	c := &cobra.Command{
		Use:   "blame RESOURCE/NAME",
		Short: "Show who set each field of an object, and when",
		Long: `Blame prints each field of an object with the change that gave it its value. A field that is
older than the history is marked with the first resource version that is left.

` + instantUsage,
		Example: `  tidemark blame deploy/web
  tidemark blame deploy/web --field=spec.template.spec.containers
  tidemark blame deploy/web -o json`,
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c, func(ctx context.Context, e *timeline.Env) error {
				return paged(c, e, func() error { return e.Blame(ctx, args, o) })
			})
		},
	}
	flags := c.Flags()
	f.add(c)
	flags.StringVar(&o.At, "at", "", "instant of the object's state (default: now)")
	flags.StringVar(&o.Field, "field", "", "only this field, and those below it")
	flags.StringVarP(&o.Output, "output", "o", "", "json for programs; a table otherwise")
	flags.BoolVar(&o.Managed, "show-managed-fields", false, "with managed fields, resource version and generation")
	f.addDir(c)
	completeFlag(c, "output", "json")
	return c
}

func newUndelete() *cobra.Command {
	f, o := new(timelineFlags), timeline.UndeleteOptions{}
	c := &cobra.Command{
		Use:   "undelete RESOURCE/NAME...",
		Short: "Bring deleted objects back",
		Long: `Undelete creates an object again as it was before its deletion: labels, annotations, spec,
finalizers. The object gets a new uid. The status does not come back where it is a
subresource: controllers make it anew. References to owners that are gone are dropped.

With --cascade, the objects that were deleted with it come back, too: those that it owned,
the custom resources of a definition, the content of a namespace. References to owners get
the new uids. With --at, all of them come back as of that instant.

These are ordinary writes: with the rights, admission, validation and quotas of now. Nothing
changes if an object is there.

` + instantUsage,
		Example: `  tidemark undelete deploy/web
  tidemark undelete crd/widgets.example.com --cascade --dry-run
  tidemark undelete ns/shop --cascade
  tidemark undelete configmap/settings --at=81200`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("RESOURCE/NAME is missing, such as deploy/web")}
			}
			return f.run(c, func(ctx context.Context, e *timeline.Env) error { return e.Undelete(ctx, args, o) })
		},
	}
	flags := c.Flags()
	f.add(c)
	flags.StringVar(&o.At, "at", "", "instant of the state to bring back (default: before the last deletion)")
	flags.BoolVar(&o.Cascade, "cascade", false, "also what the object owned, a definition's custom resources, a namespace's content")
	flags.BoolVar(&o.DryRun, "dry-run", false, "print what would come back, and change nothing")
	flags.StringVarP(&o.Output, "output", "o", "", "name, yaml or json for the objects; a line for each otherwise")
	completeFlag(c, "output", "name", "yaml", "json")
	return c
}

// newAt runs another command on an instant. Its first argument may look like a flag: -10m.
func newAt() *cobra.Command {
	f := new(timelineFlags)
	c := &cobra.Command{
		Use:   "at INSTANT -- COMMAND...",
		Short: "Run a command on the state of an instant",
		Long: `At runs a command with a KUBECONFIG that reads the state of an instant: kubectl get
and describe, helm list, any client that reads. Writes are refused, and dry runs too, which
kubectl diff makes. It ends with the exit code of the command.

` + instantUsage,
		Example: `  tidemark at -10m -- kubectl get pods -A
  tidemark at "yesterday 10:42" -- k9s --readonly`,
		DisableFlagParsing: true,
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		instant, command, err := atArguments(c, args)
		if errors.Is(err, pflag.ErrHelp) {
			return c.Help()
		}
		if err != nil {
			return usageError{err}
		}
		return f.runAt(c, instant, command)
	}
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", clientconfig.Usage)
	c.Flags().StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	return c
}

// atArguments parses the command line of at.
func atArguments(c *cobra.Command, args []string) (instant string, command []string, err error) {
	for i, arg := range args {
		if arg == "--" {
			args, command = args[:i], args[i+1:]
			break
		}
	}
	var own, instants []string
	for i, arg := range args {
		isValue := i > 0 && (args[i-1] == "--kubeconfig" || args[i-1] == "--context")
		if !isValue && (!strings.HasPrefix(arg, "-") || len(arg) > 1 && arg[1] >= '0' && arg[1] <= '9') {
			instants = append(instants, arg)
			continue
		}
		own = append(own, arg)
	}
	if len(args) == 0 && command == nil {
		return "", nil, pflag.ErrHelp
	}
	c.DisableFlagParsing = false
	err = c.ParseFlags(own)
	c.DisableFlagParsing = true
	if err != nil {
		return "", nil, flagError(c, err)
	}
	if help, _ := c.Flags().GetBool("help"); help {
		return "", nil, pflag.ErrHelp
	}
	switch {
	case len(instants) == 0:
		return "", nil, errors.New("the instant is missing: tidemark at INSTANT -- COMMAND")
	case len(instants) > 1:
		return "", nil, fmt.Errorf("%q is one argument too many: tidemark at INSTANT -- COMMAND", instants[1])
	case len(command) == 0:
		return "", nil, errors.New("the command is missing: tidemark at INSTANT -- COMMAND")
	}
	return instants[0], command, nil
}

// completeFlag completes the values of a flag.
func completeFlag(c *cobra.Command, name string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(name, listOf(values)); err != nil {
		panic(err) // there is no such flag
	}
}

// completeTimeout bounds the requests of a completion.
const completeTimeout = 3 * time.Second

// complete completes resources and names: those of the server.
func (f *timelineFlags) complete(c *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	if f.dataDir != "" {
		return nil, none
	}
	c.SetErr(io.Discard)
	e, end, err := f.env(ctx, c)
	if err != nil {
		return nil, none
	}
	defer end()
	all, spaced := e.Complete(ctx, args, text)
	if !spaced {
		return all, none | cobra.ShellCompDirectiveNoSpace
	}
	return all, none
}
