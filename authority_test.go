package tidemark_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// longLived returns a client that trusts the certificate authority of a configuration, at the time
// of a test's clock.
func longLived(t *testing.T, c *rest.Config, now func() time.Time) *http.Client {
	t.Helper()
	config := trusting(c)
	config.Time, config.ServerName = now, "localhost"
	if len(c.CertData) > 0 {
		pair, err := tls.X509KeyPair(c.CertData, c.KeyData)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// reads returns the status of a GET of a namespace.
func reads(t *testing.T, h *http.Client, c *rest.Config, path string) (int, []byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.BearerToken != "" {
		r.Header.Set("Authorization", "Bearer "+c.BearerToken)
	}
	resp, err := h.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	var raw json.RawMessage
	err = json.NewDecoder(resp.Body).Decode(&raw)
	return resp.StatusCode, raw, err
}

// TestTenYears lets 13 years pass, with a server that runs all the time and with one that
// restarts. A client with the certificates of the first day is served for ten years. One that
// reads the kubeconfig file again once a year is served forever, and so is one with a client
// certificate that it renews every ten months. Pods and extension servers find the current
// authority.
func TestTenYears(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	step := 11 // months; certificates of servers and users are valid for a year
	if tier.IsFull(t) {
		step = 5
	}
	for name, restarts := range map[string]bool{"running": false, "restarting": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c clock
			start := c.now()
			dir, file := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "kubeconfig")
			launch := func() *tidemark.Server {
				s := &tidemark.Server{Storage: &datadir.Dir{Path: dir}}
				s.SetClock(c.now)
				servertest.Start(t, s)
				if err := s.WriteKubeconfig(file); err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := launch()
			first := s.RESTConfig()
			authorities := map[string]bool{}
			for month := 0; month < 13*12; month += step {
				c.ahead.Store(int64(time.Duration(month) * year / 12))
				if restarts && month > 0 {
					servertest.Stop(t, s)
					s = launch()
				}
				config, err := clientcmd.BuildConfigFromFlags("", file)
				if err != nil {
					t.Fatal(err)
				}
				check := func(who string, trust, as *rest.Config) {
					t.Helper()
					as = rest.CopyConfig(as)
					as.Host = s.URL()
					h := longLived(t, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: trust.CAData, CertData: as.CertData, KeyData: as.KeyData}}, c.now)
					if code, body, err := reads(t, h, as, defaultNamespace); err != nil || code != http.StatusOK {
						t.Fatalf("in month %d, %s: %d %s %v", month, who, code, body, err)
					}
				}
				check("a client that reads the file", config, config)
				if c.now().Before(start.Add(10*year - 24*time.Hour)) {
					check("a client of the first day", first, first)
				}
				user, err := s.RESTConfigFor("ann", "system:masters")
				if err != nil {
					t.Fatal(err)
				}
				check("a user with a certificate", user, user)
				later := 10 * year / 12
				c.ahead.Add(int64(later)) // the certificate is valid still, whatever was renewed meanwhile
				check("a user with an older certificate", s.RESTConfig(), user)
				c.ahead.Add(-int64(later))
				authorities[published(t, s, c.now, file, dir)] = true
			}
			if len(authorities) < 2 {
				t.Error("the authority was never renewed")
			}
		})
	}
}

// published waits until the authority's certificate is the same wherever clients find it, and
// returns it.
func published(t *testing.T, s *tidemark.Server, now func() time.Time, file, dir string) string {
	t.Helper()
	config := s.RESTConfig()
	want := string(config.CAData)
	h := longLived(t, config, now)
	await.Nil(t, "the certificate of the authority", func() error {
		var pods, extensions corev1.ConfigMap
		for path, m := range map[string]*corev1.ConfigMap{"default/configmaps/kube-root-ca.crt": &pods, "kube-system/configmaps/extension-apiserver-authentication": &extensions} {
			if _, body, err := reads(t, h, config, "/api/v1/namespaces/"+path); err != nil || json.Unmarshal(body, m) != nil {
				t.Fatalf("%s: %s %v", path, body, err)
			}
		}
		fromFile, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		onDisk, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		all := []string{pods.Data["ca.crt"], extensions.Data["client-ca-file"], string(fromFile.CAData), string(onDisk)}
		if slices.ContainsFunc(all, func(published string) bool { return published != want }) {
			return fmt.Errorf("it is\n%s\nand published as\n%q", want, all)
		}
		return nil
	})
	return want
}

// TestTokenRotation checks the ways to replace the administrator's token and the authority:
// remove the file, and restart.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "kubeconfig")
	launch := func() *tidemark.Server {
		s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
		if err := s.WriteKubeconfig(file); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, remove := range []string{"admin.token", "ca.pem"} {
		s := launch()
		old := s.RESTConfig()
		servertest.Stop(t, s)
		if err := os.Remove(filepath.Join(dir, "pki", remove)); err != nil {
			t.Fatal(err)
		}
		s = launch()
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantCode(t, config, defaultNamespace, http.StatusOK, "")
		old.Host = s.URL()
		switch remove {
		case "admin.token":
			servertest.WantCode(t, old, defaultNamespace, http.StatusUnauthorized, "Unauthorized")
		case "ca.pem":
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(old.CAData)
			if _, err := servedBy(t, s, "localhost").Verify(x509.VerifyOptions{Roots: pool}); err == nil {
				t.Error("the new authority has the old key")
			}
		}
		servertest.Stop(t, s)
	}
}
