package test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// The tests in this file follow docs/how-to/repair.md with the program.

// tide runs the program to its end, and wants it to succeed or to fail, and to print the texts.
func (p *process) tide(succeeds bool, args []string, texts ...string) {
	p.t.Helper()
	out, err := exec.CommandContext(p.t.Context(), testprogram.Path(p.t), args...).CombinedOutput()
	if (err == nil) != succeeds {
		p.t.Fatalf("tidemark %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, text := range texts {
		if !bytes.Contains(out, []byte(text)) {
			p.t.Errorf("tidemark %s: no %q in\n%s", strings.Join(args, " "), text, out)
		}
	}
}

// eventually sends a request and wants a code, now or soon.
func (p *process) eventually(code int, method, path, body string) string {
	p.t.Helper()
	var response []byte
	await.Nil(p.t, fmt.Sprintf("%d for %s %s", code, method, path), func() error {
		got, text, err := p.do(context.Background(), method, path, []byte(body))
		if response = text; err != nil {
			p.t.Fatalf("%s %s: %v", method, path, err)
		}
		if got != code {
			return fmt.Errorf("%d %s", got, text)
		}
		return nil
	})
	return string(response)
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func oneConfigMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"v":%q}}`, name, value)
}

// stop ends the program cleanly.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the server ends with %v", err)
	}
	p.client.CloseIdleConnections()
	p.cmd = nil
}

// TestRepairDamage: a damaged file is named, and a backup or --accept-data-loss helps.
func TestRepairDamage(t *testing.T) {
	tier.Full(t)
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)
	p.eventually(http.StatusCreated, "POST", configMaps, oneConfigMap("a", "1"))
	backup := filepath.Join(p.dir, "b.tar")
	p.tide(true, []string{"backup", "--kubeconfig", filepath.Join(p.dir, "admin.kubeconfig"), backup}, "is complete")
	p.eventually(http.StatusCreated, "POST", configMaps, oneConfigMap("later", "1"))
	p.stop()

	wals, err := filepath.Glob(filepath.Join(p.data(), "log", "pebble", "*.log"))
	if err != nil || len(wals) == 0 {
		t.Fatal(wals, err)
	}
	wal := wals[len(wals)-1]
	b, err := os.ReadFile(wal)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.LastIndex(b, []byte("later"))] ^= 1
	if err := os.WriteFile(wal, b, 0o600); err != nil {
		t.Fatal(err)
	}
	p.tide(false, []string{"serve", "--secure-port=0", "--data-dir", p.data()}, wal+" is damaged", "--accept-data-loss")
	p.tide(false, []string{"check", p.data()}, wal+" is damaged")

	// One way is the backup.
	damaged := p.data() + ".damaged"
	if err := os.Rename(p.data(), damaged); err != nil {
		t.Fatal(err)
	}
	p.tide(true, []string{"restore", backup, p.data()}, "complete and consistent")
	p.start()
	p.eventually(http.StatusOK, "GET", configMaps+"/a", "")
	p.eventually(http.StatusNotFound, "GET", configMaps+"/later", "")
	p.stop()

	// The other one is to go on without the last changes.
	if err := os.RemoveAll(p.data()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(damaged, p.data()); err != nil {
		t.Fatal(err)
	}
	p.args = []string{"--accept-data-loss"}
	p.start()
	p.eventually(http.StatusOK, "GET", configMaps+"/a", "")
	p.stop()
	p.tide(true, []string{"check", p.data()}, "is consistent")
	if kept, err := filepath.Glob(filepath.Join(p.data(), "log", "dropped", "*")); err != nil || len(kept) == 0 {
		t.Errorf("the damaged file is not kept: %v", err)
	}
}

// TestRepairFullDisk: with a full disk, reads and deletions work, and after the deletions writes do.
func TestRepairFullDisk(t *testing.T) {
	tier.Full(t)
	if _, err := exec.LookPath("unshare"); err != nil || os.Geteuid() != 0 {
		t.Skip("it mounts a file system, for which it needs root and unshare")
	}
	p := &process{t: t, dir: t.TempDir(), disk: "32m"}
	p.start()
	t.Cleanup(p.kill)
	made := 0
	// fill writes until a path gets a code: the server gives back space meanwhile.
	fill := func(code int, path string) string {
		t.Helper()
		for range 500 {
			noise := make([]byte, 100_000) // does not compress
			if _, err := rand.Read(noise); err != nil {
				t.Fatal(err)
			}
			got, response, err := p.do(context.Background(), "POST", configMaps, []byte(oneConfigMap(fmt.Sprint("n", made), fmt.Sprintf("%x", noise))))
			switch {
			case err != nil:
				t.Fatal(err)
			case got == http.StatusCreated:
				made++
			case got != http.StatusInsufficientStorage || !strings.Contains(string(response), "free space there, or delete objects"):
				t.Fatalf("%d %s", got, response)
			}
			if got, response, err = p.do(context.Background(), "GET", path, nil); err != nil {
				t.Fatal(err)
			} else if got == code {
				return string(response)
			}
		}
		t.Fatalf("GET %s is never %d, with %d objects", path, code, made)
		return ""
	}
	if got := fill(http.StatusInternalServerError, "/readyz?verbose"); !strings.Contains(got, "[-]disk-space failed") {
		t.Errorf("readyz says %s", got)
	}
	fill(http.StatusInsufficientStorage, "/backup")
	p.eventually(http.StatusOK, "GET", "/readyz?exclude=disk-space", "")
	p.eventually(http.StatusOK, "GET", "/livez", "")
	p.eventually(http.StatusOK, "GET", configMaps+"/n0", "")
	for i := range made {
		p.eventually(http.StatusOK, "DELETE", fmt.Sprintf("%s/n%d", configMaps, i), "")
	}
	p.eventually(http.StatusCreated, "POST", configMaps, oneConfigMap("small", "1"))
	p.eventually(http.StatusOK, "GET", "/readyz", "")
}

// TestRepairCertificate: a certificate that is about to end makes the server not ready, and a new file is enough. The
// server's own certificates come back if they are removed.
func TestRepairCertificate(t *testing.T) {
	tier.Full(t)
	p := &process{t: t, dir: t.TempDir()}
	cert, key := filepath.Join(p.dir, "tls.crt"), filepath.Join(p.dir, "tls.key")
	certify := func(valid time.Duration) {
		t.Helper()
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]*pem.Block{key: {Type: "PRIVATE KEY", Bytes: private}, cert: {Type: "CERTIFICATE", Bytes: der}} {
			if err := os.WriteFile(name+".new", pem.EncodeToMemory(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	certify(90 * 24 * time.Hour)
	p.args = []string{"--tls-cert-file", cert, "--tls-private-key-file", key}
	p.start()
	t.Cleanup(p.kill)
	certify(time.Minute)
	if got := p.eventually(http.StatusInternalServerError, "GET", "/readyz?verbose", ""); !strings.Contains(got, "[-]serving-certificate failed") {
		t.Errorf("readyz says %s", got)
	}
	certify(90 * 24 * time.Hour)
	p.eventually(http.StatusOK, "GET", "/readyz", "")
	p.stop()

	p.args = nil
	p.start()
	p.stop()
	if err := os.Remove(filepath.Join(p.data(), "pki", "serving.pem")); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.eventually(http.StatusOK, "GET", "/readyz", "")
	p.stop()
	if _, err := os.Stat(filepath.Join(p.data(), "pki", "serving.pem")); err != nil {
		t.Error(err)
	}
}
