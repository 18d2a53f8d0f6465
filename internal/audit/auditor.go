package audit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// Config configures an Auditor.
type Config struct {
	// Policy is required.
	Policy *Policy
	// Log and Webhook are the back ends; nil: there is none.
	Log     *LogConfig
	Webhook *WebhookConfig
	// Logger gets failures of the back ends, without events; nil: nothing is logged.
	Logger *slog.Logger
	// Now is the wall clock for the names of old log files; nil: time.Now.
	Now func() time.Time
}

// Mode is when the events of a request reach a back end. The names are those of the flags.
type Mode string

// The modes.
const (
	// Batch buffers events; a goroutine writes them. Events that do not fit are dropped and
	// counted. A killed process loses the buffer.
	Batch Mode = "batch"
	// Blocking writes an event before the request continues. A request waits for a webhook for ten
	// seconds at most, and the event is sent later then. Failures are counted.
	Blocking Mode = "blocking"
	// BlockingStrict is Blocking that refuses a request whose event RequestReceived cannot be
	// written.
	BlockingStrict Mode = "blocking-strict"
)

// Backend is the configuration that both back ends share.
type Backend struct {
	Mode Mode
	// Batch counts in the mode batch.
	Batch BatchConfig
	// Truncate: MaxEventBytes and MaxBatchBytes count.
	Truncate                     bool
	MaxEventBytes, MaxBatchBytes int64
}

// LogConfig configures the log.
type LogConfig struct {
	Backend
	// Path is the file; "-": the standard output.
	Path string
	// Legacy writes lines of text instead of JSON.
	Legacy bool
	File   FileConfig
	// Stdout replaces the standard output in tests; nil: os.Stdout.
	Stdout io.Writer
}

// Auditor gives events to the back ends. It is safe for concurrent use.
type Auditor struct {
	policy   *Policy
	backends []*backend
	failures *failures
	lines    sync.Pool // *[]byte

	levels   [len(levelNames)]atomic.Int64 // requests
	events   atomic.Int64
	rejected atomic.Int64 // requests
}

// New opens the back ends. Close closes them.
func New(c Config) (*Auditor, error) {
	a := &Auditor{policy: c.Policy, failures: newFailures(c.Logger)}
	a.lines.New = func() any { return new([]byte) }
	if c.Log != nil {
		f, err := openLog(c.Log, c.Now)
		if err != nil {
			return nil, err
		}
		b := &backend{name: pluginLog, legacy: c.Log.Legacy, Backend: c.Log.Backend, failures: a.failures}
		b.sink = b.newSink(f, 1)
		a.backends = append(a.backends, b)
	}
	if c.Webhook != nil {
		w, err := openWebhook(c.Webhook)
		if err != nil {
			return nil, errors.Join(err, a.Close())
		}
		b := &backend{name: pluginWebhook, Backend: c.Webhook.Backend, failures: a.failures}
		b.sink = b.newSink(w, webhookSenders)
		a.backends = append(a.backends, b)
	}
	return a, nil
}

// closeTimeout bounds how long Close waits for a webhook that does not respond.
const closeTimeout = 5 * time.Second

// Close writes the buffered events, and closes the back ends. Later events are lost. A webhook that
// does not respond delays it for closeTimeout.
func (a *Auditor) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for _, b := range a.backends {
		errs = append(errs, b.sink.close(ctx))
	}
	return errors.Join(errs...)
}

// Decide returns how a request is recorded, and counts it.
func (a *Auditor) Decide(of *authz.Attributes) Decision {
	d := a.policy.Decide(of)
	a.levels[d.Level].Add(1)
	return d
}

// maxLine is the largest buffer that is kept for later events.
const maxLine = 64 << 10

// Process gives the event of a stage to the back ends. It does not keep the event. It returns
// false if a back end of the mode blocking-strict failed.
func (a *Auditor) Process(e *Event, stage Stage, at time.Time) bool {
	if e.Omits(stage) {
		return true
	}
	a.events.Add(1)
	room := a.lines.Get().(*[]byte)
	line := e.append((*room)[:0], stage, at, false)
	ok := true
	for _, b := range a.backends {
		if err := b.process(e, stage, at, line); err != nil && b.Mode == BlockingStrict {
			ok = false
		}
	}
	if *room = line[:0]; cap(line) <= maxLine {
		a.lines.Put(room)
	}
	return ok
}

// Reject counts a request that is refused because Process failed.
func (a *Auditor) Reject() { a.rejected.Add(1) }

// The names of plugins in the metrics, as in kube-apiserver.
const (
	pluginLog      = "log"
	pluginWebhook  = "webhook"
	pluginBuffered = "buffered"
	pluginTruncate = "truncate"
)

// backend is a back end with its options.
type backend struct {
	Backend
	name     string
	legacy   bool
	sink     sink
	failures *failures
}

// sink takes events. It is safe for concurrent use.
type sink interface {
	// put takes an event and its line. It does not keep them. It counts its failures. Event.NoWait and
	// Event.Done limit how long it waits.
	put(e *Event, line []byte) error
	// close writes the remaining events, until the context is done.
	close(ctx context.Context) error
}

// output writes events. Its write is called for one batch at a time, unless it is the webhook's.
type output interface {
	// write writes a batch. The context ends when the server does not wait any longer.
	write(ctx context.Context, b *batch) error
	// hurry is called when the server closes: write then does not wait long between attempts.
	hurry()
	close() error
}

func (b *backend) newSink(out output, senders int) sink {
	fail := func(plugin string, events int, err error) { b.failures.add(plugin, events, err) }
	switch {
	case b.Mode == Batch:
		c := b.Batch
		c.maxBytes = maxBatchBytes
		if b.Truncate {
			c.maxBytes = b.MaxBatchBytes
		}
		return newBuffered(c, out, senders, b.name, fail)
	case senders > 1:
		return newWaiting(out, senders, b.name, fail)
	}
	return newCommitter(out, b.name, fail)
}

var errTooLarge = errors.New("event is too large even after truncating")

// process gives an event to the back end. line is the event as JSON.
func (b *backend) process(e *Event, stage Stage, at time.Time, line []byte) error {
	if b.Truncate && int64(len(line)) > b.MaxEventBytes {
		if e.Level >= Request {
			line = e.append(nil, stage, at, true)
		}
		if int64(len(line)) > b.MaxEventBytes {
			b.failures.add(pluginTruncate, 1, errTooLarge)
			return nil
		}
	}
	if b.legacy {
		line = e.appendLegacy(nil, stage)
	}
	return b.sink.put(e, line)
}
