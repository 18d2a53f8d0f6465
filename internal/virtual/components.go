package virtual

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

const (
	// probeTimeout limits a health check. It is shorter than a client waits.
	probeTimeout = 5 * time.Second
	// maxProbeBytes limits the message that is read.
	maxProbeBytes = 10 << 10
)

// component is a component of a cluster, with a ComponentStatus.
type component struct {
	name string
	// url is the component's health check; empty for the store, a part of this server.
	url string
}

// cluster are the components of ComponentStatus. The old API expects them on the server's own
// machine.
var cluster = []component{
	{"controller-manager", "https://127.0.0.1:10257/healthz"},
	{"scheduler", "https://127.0.0.1:10259/healthz"},
	{"etcd-0", ""},
}

func components() *registry.Source {
	s := &registry.Source{Read: readComponents}
	for _, c := range cluster {
		s.Names = append(s.Names, c.name)
	}
	return s
}

// readComponents checks the health of components in parallel.
func readComponents(ctx context.Context, names []string) []runtime.Object {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// The components have self-signed certificates. The server shows their messages, and does
			// not rely on them.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		// A local process at a component's port must not choose what the server reads and shows.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	made := make([]runtime.Object, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { made[i] = status(ctx, client, name) })
	}
	wg.Wait()
	return made
}

func status(ctx context.Context, client *http.Client, name string) *corev1.ComponentStatus {
	healthy := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	for _, c := range cluster {
		if c.name != name || c.url == "" {
			continue
		}
		message, err := probe(ctx, client, c.url)
		healthy.Message = message
		if err != nil {
			healthy.Status, healthy.Message = corev1.ConditionFalse, err.Error()
		}
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Conditions: []corev1.ComponentCondition{healthy}}
}

// probe returns a component's message about its health.
func probe(ctx context.Context, client *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProbeBytes))
	if err == nil && (response.StatusCode < 200 || response.StatusCode >= 400) {
		err = fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return string(body), err
}
