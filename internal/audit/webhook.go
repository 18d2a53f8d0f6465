package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	shared "github.com/tidemark-dev/tidemark/internal/webhook"
)

// WebhookConfig configures the webhook.
type WebhookConfig struct {
	Backend
	// ConfigFile is a kubeconfig that names the server to send events to.
	ConfigFile string
	// InitialBackoff is the time before the second attempt.
	InitialBackoff time.Duration
}

const (
	// webhookTimeout bounds an attempt.
	webhookTimeout = 30 * time.Second
	// webhookAttempts, backoffFactor and backoffJitter are kube-apiserver's.
	webhookAttempts = 5
	backoffFactor   = 1.5
	backoffJitter   = 0.2
	// webhookSenders is how many batches are sent at once. More wait in the buffer.
	webhookSenders = 16
	// hurryPause is between two attempts when the server closes.
	hurryPause = 100 * time.Millisecond
)

// webhook sends events to a server. Its methods are safe for concurrent use.
type webhook struct {
	client  *http.Client
	url     string
	backoff time.Duration

	urgent     chan struct{} // closed by hurry
	urgentOnce sync.Once
}

func openWebhook(c *WebhookConfig) (output, error) {
	config, err := shared.Config(c.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	config.Timeout = webhookTimeout
	client, err := shared.HTTPClient(config)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("initializing audit webhook: %w", err)
	}
	base.RawQuery = url.Values{"timeout": {webhookTimeout.String()}}.Encode()
	return &webhook{client: client, url: base.String(), backoff: c.InitialBackoff, urgent: make(chan struct{})}, nil
}

// eventListHead begins a list of events, which have no kind of their own.
const eventListHead = `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`

// eventList returns a batch as an EventList.
func eventList(b *batch) []byte {
	body := append(make([]byte, 0, len(b.data)+len(eventListHead)+2), eventListHead...)
	from := 0
	for i, end := range b.ends {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(append(body, '{'), b.data[from+len(eventHead):end-1]...)
		from = end
	}
	return append(body, "]}"...)
}

// write implements output. It tries several times, whatever the error is.
func (w *webhook) write(ctx context.Context, b *batch) error {
	body, wait := eventList(b), w.backoff
	for attempt := 1; ; attempt++ {
		err := w.post(ctx, body)
		if err == nil || attempt >= webhookAttempts && !w.hurries() || ctx.Err() != nil {
			return err
		}
		w.pause(ctx, time.Duration(float64(wait)*(1+backoffJitter*rand.Float64())))
		wait = time.Duration(float64(wait) * backoffFactor)
	}
}

func (w *webhook) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, */*")
	response, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("the audit webhook responded %d", response.StatusCode)
	}
	return nil
}

// pause waits, shorter when the server closes.
func (w *webhook) pause(ctx context.Context, d time.Duration) {
	urgent := w.urgent
	if w.hurries() {
		d, urgent = min(d, hurryPause), nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-urgent:
	}
}

func (w *webhook) hurries() bool {
	select {
	case <-w.urgent:
		return true
	default:
		return false
	}
}

func (w *webhook) hurry() { w.urgentOnce.Do(func() { close(w.urgent) }) }

func (w *webhook) close() error {
	utilnet.CloseIdleConnectionsFor(w.client.Transport)
	return nil
}
