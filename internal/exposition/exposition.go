// Package exposition writes metrics in the text format of Prometheus. It is for values that are known at a scrape, and for
// metrics that have many series, or that requests update: an observation costs a few nanoseconds, and a sample that is written
// costs a copy of its labels.
package exposition

import (
	"io"
	"strconv"
	"strings"
)

// ContentType is the media type of the output of a Writer.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// flushBytes is how much a Writer gathers before it writes.
const flushBytes = 64 << 10

// Source has metrics.
type Source interface {
	// Expose writes the metrics, all series of a metric together.
	Expose(w *Writer)
}

// Func is a Source.
type Func func(w *Writer)

// Expose implements Source.
func (f Func) Expose(w *Writer) { f(w) }

// Writer writes metrics. After an error it writes nothing more; Close returns the error. It is not safe for concurrent
// use.
type Writer struct {
	to      io.Writer
	buf     []byte
	prefix  []byte // of the samples of a histogram
	name    string // of the family
	pending string // the head of the family, before its first sample
	err     error
}

// NewWriter returns a Writer. Call Close at the end.
func NewWriter(to io.Writer) *Writer {
	return &Writer{to: to, buf: make([]byte, 0, flushBytes+16<<10)}
}

// Kind is the type of a metric.
type Kind string

// The kinds of metrics that a Writer knows.
const (
	CounterKind   Kind = "counter"
	GaugeKind     Kind = "gauge"
	HistogramKind Kind = "histogram"
)

// Family begins a metric. A metric without samples is not written.
func (w *Writer) Family(name string, kind Kind, help string) {
	w.name = name
	w.pending = "# HELP " + name + " " + escapeHelp.Replace(help) + "\n# TYPE " + name + " " + string(kind) + "\n"
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Labels returns labels as samples have them, from names and values in turn: `code="200",verb="GET"`.
func Labels(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		b.WriteString(escapeValue.Replace(pairs[i+1]))
		b.WriteByte('"')
	}
	return b.String()
}

// begin writes the head of the family before its first sample.
func (w *Writer) begin() {
	if w.pending != "" {
		w.buf = append(w.buf, w.pending...)
		w.pending = ""
	}
}

// head begins a sample.
func (w *Writer) head(suffix, labels string) {
	w.begin()
	b := append(append(w.buf, w.name...), suffix...)
	if labels != "" {
		b = append(append(append(b, '{'), labels...), '}')
	}
	w.buf = append(b, ' ')
}

// tail ends a sample.
func (w *Writer) tail() {
	if w.buf = append(w.buf, '\n'); len(w.buf) >= flushBytes {
		w.flush()
	}
}

// Float writes a sample of the family. The labels are as Labels returns them, or empty.
func (w *Writer) Float(labels string, value float64) {
	w.head("", labels)
	w.buf = strconv.AppendFloat(w.buf, value, 'g', -1, 64)
	w.tail()
}

// Uint writes a sample of the family.
func (w *Writer) Uint(labels string, value uint64) {
	w.head("", labels)
	w.buf = strconv.AppendUint(w.buf, value, 10)
	w.tail()
}

// Gauge writes a metric with one sample, which has no labels.
func (w *Writer) Gauge(name string, value float64, help string) {
	w.Family(name, GaugeKind, help)
	w.Float("", value)
}

// Counter writes a metric with one sample, which has no labels.
func (w *Writer) Counter(name string, value float64, help string) {
	w.Family(name, CounterKind, help)
	w.Float("", value)
}

// Histogram writes the samples of a histogram. A nil histogram has none.
func (w *Writer) Histogram(labels string, h *Histogram) {
	if h == nil {
		return
	}
	w.begin()
	w.prefix = append(append(append(w.prefix[:0], w.name...), "_bucket{"...), labels...)
	if labels != "" {
		w.prefix = append(w.prefix, ',')
	}
	var count uint64
	b := w.buf
	for i := range h.counts {
		count += h.counts[i].Load()
		b = append(append(b, w.prefix...), h.buckets.labels[i]...)
		b = append(strconv.AppendUint(b, count, 10), '\n')
	}
	w.buf = b
	w.head("_sum", labels)
	w.buf = strconv.AppendFloat(w.buf, h.Sum(), 'g', -1, 64)
	w.tail()
	w.head("_count", labels)
	w.buf = strconv.AppendUint(w.buf, count, 10)
	w.tail()
}

// Write writes text that is in the format already, with its families. It implements io.Writer.
func (w *Writer) Write(text []byte) (int, error) {
	w.pending = ""
	w.buf = append(w.buf, text...)
	if len(w.buf) >= flushBytes {
		w.flush()
	}
	return len(text), w.err
}

func (w *Writer) flush() {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.to.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// Close writes the buffered output. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.flush()
	return w.err
}
