// Package collector sends spans to a collector of OpenTelemetry, as a TracingConfiguration says. Only the command links
// it: programs that embed the server bring their own tracer provider.
package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverv1beta1 "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"
	tracingv1 "k8s.io/component-base/tracing/api/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
)

const (
	group = "apiserver.config.k8s.io"
	kind  = "TracingConfiguration"

	// maxFileBytes bounds the file.
	maxFileBytes = 1 << 20
	// maxRate is the sampling rate of all requests.
	maxRate = 1_000_000
	// queuedSpans bounds the spans that wait to be sent; others are dropped. batchSpans bounds those of one call.
	queuedSpans, batchSpans = 8192, 512
	// attributeBytes bounds the values of attributes. Clients determine some of them.
	attributeBytes = 4 << 10
	// flushTimeout bounds how long Close waits for the collector.
	flushTimeout = 2 * time.Second
	// quiet is how long failures of the collector are not logged after one that was.
	quiet = time.Minute
)

// Config is the destination of spans, and the sampling of requests.
type Config struct {
	// Endpoint is the address of the collector in the form of gRPC: host:port, dns://host:port, unix:///path. Empty:
	// that of the environment variables of OpenTelemetry, or localhost:4317.
	Endpoint string
	// RatePerMillion is how many of a million requests are sampled, from 0 to 1,000,000. Requests whose client decides
	// do not count.
	RatePerMillion int32
}

// Read reads a TracingConfiguration from a file. Unknown and repeated fields are errors.
func Read(path string) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	c, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parse(text []byte) (*Config, error) {
	read, err := pluginconfig.Decode(text,
		pluginconfig.Kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Object: &apiserverv1.TracingConfiguration{}, Strict: true},
		pluginconfig.Kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1beta1", Kind: kind}, Object: &apiserverv1beta1.TracingConfiguration{}, Strict: true},
	)
	if err != nil {
		return nil, err
	}
	var sent tracingv1.TracingConfiguration
	switch o := read.(type) {
	case *apiserverv1.TracingConfiguration:
		sent = o.TracingConfiguration
	case *apiserverv1beta1.TracingConfiguration:
		sent = o.TracingConfiguration
	}
	c := &Config{}
	if sent.Endpoint != nil {
		c.Endpoint = *sent.Endpoint
	}
	if sent.SamplingRatePerMillion != nil {
		c.RatePerMillion = *sent.SamplingRatePerMillion
	}
	return c, errors.Join(c.checkRate(), c.checkEndpoint())
}

func (c *Config) checkRate() error {
	if c.RatePerMillion < 0 || c.RatePerMillion > maxRate {
		return fmt.Errorf("samplingRatePerMillion: %d: want 0 to %d", c.RatePerMillion, maxRate)
	}
	return nil
}

func (c *Config) checkEndpoint() error {
	text := c.Endpoint
	if !strings.Contains(text, "//") {
		text = "dns://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("endpoint: %q: want host:port, dns://host:port or unix:///path", c.Endpoint)
	}
	switch u.Scheme {
	case "dns", "unix", "unix-abstract":
		return nil
	}
	return fmt.Errorf("endpoint: %q: the scheme is %s: want none, dns, unix or unix-abstract", c.Endpoint, u.Scheme)
}

// Service describes the server in its spans.
type Service struct {
	// Version is the server's own version.
	Version string
	// Instance is unique to the process.
	Instance string
}

// Provider sends spans to a collector, over a connection without TLS. Spans wait in a bounded queue: a collector that
// does not respond never blocks a request. It is safe for concurrent use.
type Provider struct{ *trace.TracerProvider }

// Open returns a provider. It does not wait for the collector. Failures to send spans are logged at most once a minute.
func Open(ctx context.Context, c *Config, s Service, log *slog.Logger) (*Provider, error) {
	options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if c.Endpoint != "" {
		options = append(options, otlptracegrpc.WithEndpoint(c.Endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("the collector of spans: %w", err)
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "tidemark"), attribute.String("service.version", s.Version),
			attribute.String("service.instance.id", s.Instance),
		),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the attributes of spans: %w", err), exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(&failures{log: log})
	limits := trace.NewSpanLimits()
	limits.AttributeValueLengthLimit = attributeBytes
	return &Provider{trace.NewTracerProvider(
		trace.WithSampler(c.sampler()),
		trace.WithBatcher(exporter, trace.WithMaxQueueSize(queuedSpans), trace.WithMaxExportBatchSize(batchSpans)),
		trace.WithResource(described),
		trace.WithRawSpanLimits(limits),
	)}, nil
}

// sampler follows the decision of the parent. Spans without a parent are sampled at the configured rate.
func (c *Config) sampler() trace.Sampler {
	if c.RatePerMillion == 0 {
		return trace.ParentBased(trace.NeverSample())
	}
	return trace.ParentBased(trace.TraceIDRatioBased(float64(c.RatePerMillion) / maxRate))
}

// Close sends the spans that wait, for at most two seconds, and closes the connection.
func (p *Provider) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	return p.Shutdown(ctx)
}

// failures logs errors of the exporter.
type failures struct {
	log  *slog.Logger
	last atomic.Int64 // when one was logged, in nanoseconds since 1970
}

// Handle implements otel.ErrorHandler.
func (f *failures) Handle(err error) {
	now := time.Now().UnixNano()
	last := f.last.Load()
	if now-last >= int64(quiet) && f.last.CompareAndSwap(last, now) {
		f.log.Warn("spans cannot be sent to the collector", "err", err)
	}
}
