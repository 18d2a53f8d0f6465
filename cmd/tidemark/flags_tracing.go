package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/collector"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// tracingFlags has the flag of traces, and the configuration that it names.
type tracingFlags struct {
	file   string
	config *collector.Config // nil: there are no traces
}

func (t *tracingFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&t.file, "tracing-config-file", "", "file with a TracingConfiguration of apiserver.config.k8s.io/v1: the collector of OpenTelemetry that gets spans of requests, and how many requests are sampled")
}

// check reads the file.
func (t *tracingFlags) check() (err error) {
	if t.file == "" {
		return nil
	}
	if t.config, err = collector.Read(t.file); err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	return nil
}

// openTracing gives the server its tracer provider. close sends the last spans; it is called after the server was closed.
func (f *serveFlags) openTracing(ctx context.Context) (close func(), err error) {
	if f.tracing.config == nil {
		return func() {}, nil
	}
	s := &f.server
	provider, err := collector.Open(ctx, f.tracing.config, collector.Service{Version: ownVersion(), Instance: uuid.New()}, s.Logger)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	s.Diagnostics.TracerProvider = provider
	return func() {
		if err := provider.Close(); err != nil {
			s.Logger.Warn("the last spans were not sent to the collector", "err", err)
		}
	}, nil
}
