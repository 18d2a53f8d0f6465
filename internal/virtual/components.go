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
	// componentTimeout is how long a component may take to say how it is: less than a
	// client waits.
	componentTimeout = 5 * time.Second
	// componentBytes is how much of what it says is read.
	componentBytes = 10 << 10
)

// component is a part of a cluster whose health ComponentStatus tells.
type component struct {
	name string
	// url is asked how it is; empty: it is a part of this server.
	url string
}

// cluster is what ComponentStatus knows of a cluster. That the parts run on this
// machine was true once; so it is asked all the same.
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

// readComponents asks the parts of a cluster how they are, all at once.
func readComponents(ctx context.Context, names []string) []runtime.Object {
	ctx, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		// Their certificates are of no authority; what they say is shown, and not relied on.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
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
		message, err := ask(ctx, client, c.url)
		healthy.Message = message
		if err != nil {
			healthy.Status, healthy.Message = corev1.ConditionFalse, err.Error()
		}
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Conditions: []corev1.ComponentCondition{healthy}}
}

// ask returns what a component says of its health.
func ask(ctx context.Context, client *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, componentBytes))
	if err == nil && (answer.StatusCode < 200 || answer.StatusCode >= 400) {
		err = fmt.Errorf("HTTP probe failed with statuscode: %d", answer.StatusCode)
	}
	return string(body), err
}
