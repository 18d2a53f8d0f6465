// Command picture writes docs/dashboard.svg: the panels of deploy/monitoring/dashboard.json with the metrics of a server under
// load. It starts the server and the load, scrapes the server each second, and evaluates the expressions with Prometheus' engine.
//
//	cd tools/promtool && GOWORK=off go run ./picture
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	root = "../.."
	file = root + "/docs/dashboard.svg"
)

// webhook fails and is ignored, so that the panels of webhooks show something.
const webhook = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"example"},
"webhooks":[{"name":"absent.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"failurePolicy":"Ignore","sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1,
"rules":[{"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"],"operations":["CREATE","UPDATE"]}]}]}`

// loads are the scenarios of tidemark bench that run one after the other.
var loads = []string{"create-configmap", "get", "apply-deployment", "list-selector", "watch-100", "update"}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "picture-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "tidemark")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/tidemark")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	s, err := start(ctx, program, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.create(ctx, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", webhook); err != nil {
		return err
	}
	db, err := newDatabase(filepath.Join(dir, "tsdb"))
	if err != nil {
		return err
	}
	defer db.close()
	loaded := make(chan error, 1)
	go func() { loaded <- s.load(ctx, program) }()
	if err := s.scrape(ctx, db, loaded); err != nil {
		return err
	}
	text, err := os.ReadFile(root + "/deploy/monitoring/dashboard.json")
	if err != nil {
		return err
	}
	panels, err := parsePanels(text)
	if err != nil {
		return err
	}
	for i := range panels {
		if err := db.evaluate(ctx, &panels[i]); err != nil {
			return fmt.Errorf("%s: %w", panels[i].title, err)
		}
	}
	return os.WriteFile(file, draw("Tidemark under load", panels), 0o644) //nolint:gosec // it has no secrets
}

// server is a server under load.
type server struct {
	url, kubeconfig, token string
	client                 http.Client
	process                *exec.Cmd
}

func start(ctx context.Context, program, data string) (*server, error) {
	s := &server{kubeconfig: filepath.Join(data, "kubeconfig")}
	s.process = exec.CommandContext(ctx, program, "serve", "--data-dir="+data, "--secure-port=0", "--ready-fd=1")
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the server does not start: %w", err)
	}
	var ready struct{ URL string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return nil, err
	}
	go io.Copy(io.Discard, out) //nolint:errcheck // nothing of it is wanted
	token, err := os.ReadFile(filepath.Join(data, "pki", "admin.token"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(data, "pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	s.url, s.token = ready.URL, strings.TrimSpace(string(token))
	s.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return s, nil
}

func (s *server) stop() {
	s.process.Process.Signal(os.Interrupt) //nolint:errcheck // it has ended
	s.process.Wait()                       //nolint:errcheck // its exit code says nothing here
}

func (s *server) request(ctx context.Context, method, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return text, err
}

func (s *server) create(ctx context.Context, path, object string) error {
	_, err := s.request(ctx, http.MethodPost, path, object)
	return err
}

// load runs the scenarios.
func (s *server) load(ctx context.Context, program string) error {
	for _, scenario := range loads {
		c := exec.CommandContext(ctx, program, "bench", scenario, "--kubeconfig="+s.kubeconfig, "--rounds=1", "--duration=5s", "--objects=1000", "--clients=4", "--watchers=50")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("bench %s: %w: %s", scenario, err, out)
		}
	}
	return nil
}

// scrape stores the metrics each second, until five seconds after the load.
func (s *server) scrape(ctx context.Context, db *database, loaded <-chan error) error {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for left := -1; left != 0; left-- {
		text, err := s.request(ctx, http.MethodGet, "/metrics", "")
		if err == nil {
			err = db.add(text, time.Now())
		}
		if err != nil {
			return err
		}
		select {
		case err := <-loaded:
			if err != nil {
				return err
			}
			left, loaded = 6, nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
	return nil
}
