package etcdlog_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// logged is a buffer for several goroutines.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *logged) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *logged) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// TestOutage: while etcd is lost, the health checks fail, requests fail soon and say why, reads of any
// state go on, and the log has one line about it, and one when etcd is back.
func TestOutage(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c := startCluster(t, 1, nil)
	log := new(logged)
	cluster := &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, HealthTimeout: 300 * time.Millisecond, ReadyTimeout: 300 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(log, nil))}
	s := &tidemark.Server{InProcess: true, Storage: cluster}
	must(t, s.Start(t.Context()))
	t.Cleanup(func() { must(t, s.Close()) })
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	healthy := func(path string) bool {
		_, err := client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		return err == nil
	}
	await.True(t, "the server is healthy", func() bool { return healthy("/readyz") && healthy("/livez") })
	c.members[0].clients.cut()
	for _, path := range []string{"/readyz/etcd", "/readyz/etcd-readiness", "/livez", "/readyz"} {
		await.True(t, path+" fails", func() bool { return !healthy(path) })
	}
	await.True(t, "etcd is lost", func() bool { return strings.Contains(log.String(), "etcd is lost") })
	maps, plain := client.CoreV1().ConfigMaps("default"), client.CoreV1().RESTClient()
	began := time.Now()
	err = plain.Post().MaxRetries(0).Namespace("default").Resource("configmaps").Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).Do(t.Context()).Error()
	if !apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("a write: %v", err)
	}
	err = plain.Get().MaxRetries(0).Namespace("default").Resource("configmaps").Name("kube-root-ca.crt").Do(t.Context()).Error()
	if !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("a read of the newest state: %v", err)
	}
	t.Logf("the responses took %v", time.Since(began))
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("a read of any state: %v", err)
	}
	c.members[0].clients.restore()
	await.True(t, "the server is ready", func() bool { return healthy("/readyz") })
	await.True(t, "etcd is back", func() bool { return strings.Contains(log.String(), "etcd is back") })
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	must(t, err)
	for _, line := range []string{"etcd is lost", "etcd is back"} {
		if n := strings.Count(log.String(), line); n != 1 || !strings.Contains(log.String(), c.servers()[0]) {
			t.Errorf("the log says %d times that %s:\n%s", n, line, log)
		}
	}
}

// makeSpace compacts and defragments etcd as an operator does after deletions: etcd accepts writes
// again.
func makeSpace(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	head, err := etcd.Get(t.Context(), "x")
	must(t, err)
	_, err = etcd.Compact(t.Context(), head.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	_, err = etcd.Defragment(t.Context(), etcd.Endpoints()[0])
	must(t, err)
	_, err = etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	must(t, err)
}

// TestFull: when etcd's database has reached its quota, writes are refused, and the log, the health checks and the
// metrics say so. Reads and deletions go on, and a server starts. Writes are accepted after the alarm was disarmed.
func TestFull(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c, dir := startCluster(t, 1, func(o *embed.Config) { o.QuotaBackendBytes = 16 << 20 }), t.TempDir()
	log := new(logged)
	start := func() (*tidemark.Server, kubernetes.Interface) {
		cluster := &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, UsageInterval: 100 * time.Millisecond, Path: sameFiles(t, dir), Logger: slog.New(slog.NewTextHandler(log, nil))}
		s := &tidemark.Server{InProcess: true, Storage: cluster}
		return s, begin(t, s)
	}
	_, client := start()
	get := func(path, parameter string) string {
		t.Helper()
		text, err := client.Discovery().RESTClient().Get().AbsPath(path).Param(parameter, "").DoRaw(t.Context())
		must(t, err)
		return string(text)
	}
	maps := client.CoreV1().ConfigMaps("default")
	text, made := strings.Repeat("x", 700<<10), []string{}
	for i := 0; ; i++ {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)}, Data: map[string]string{"text": text}}
		_, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
		if err == nil && i < 100 {
			made = append(made, m.Name)
			continue
		}
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != 507 || !strings.Contains(err.Error(), "disarm the alarm") {
			t.Fatalf("after %d objects: %v", i, err)
		}
		break
	}
	await.True(t, "/readyz has the alarm", func() bool {
		return strings.Contains(get("/readyz", "verbose"), "disk-space ok, full: etcd refuses writes, its database of ")
	})
	metrics := get("/metrics", "")
	for _, want := range []string{"\ntidemark_disk_refused_writes_total ", "\ntidemark_log_limit_bytes 1.6777216e+07\n"} {
		if !strings.Contains(metrics, want) || strings.Contains(metrics, want+"0\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if n := strings.Count(log.String(), "etcd refuses writes"); n != 1 {
		t.Errorf("the log says %d times that etcd refuses writes:\n%s", n, log)
	}
	await.True(t, "no server leads", func() bool { return strings.Contains(get("/readyz", "verbose"), "paused: no server leads") })
	second, other := start() // a restart would not make it worse
	if _, err := other.CoreV1().ConfigMaps("default").Get(t.Context(), made[0], metav1.GetOptions{}); err != nil {
		t.Errorf("a read: %v", err)
	}
	for _, name := range made {
		must(t, maps.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{})
	if err == nil {
		t.Error("etcd has accepted a write while its alarm was raised")
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
	must(t, err)
	defer etcd.Close()
	makeSpace(t, etcd)
	await.True(t, "etcd accepts writes", func() bool {
		return !strings.Contains(get("/readyz", "verbose"), "etcd refuses writes")
	})
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{})
	must(t, err)
	await.True(t, "a server leads, and both have a Lease", func() bool {
		all, err := client.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=tidemark"})
		must(t, err)
		return len(all.Items) == 2 && !strings.Contains(get("/readyz", "verbose"), "no server leads")
	})
	must(t, second.Close())
}

// TestDifferentWhileFull: while etcd is full, servers cannot renew their Leases, and look as if they had ended. A server with
// other settings that starts then ends when there is space again, and the one that was there goes on.
func TestDifferentWhileFull(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c, dir := startCluster(t, 1, func(o *embed.Config) { o.QuotaBackendBytes = 16 << 20 }), t.TempDir()
	start := func(ports string) (*tidemark.Server, kubernetes.Interface) {
		s := &tidemark.Server{InProcess: true, Services: tidemark.Services{NodePortRange: ports}, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, UsageInterval: 100 * time.Millisecond, Path: sameFiles(t, dir)}}
		return s, begin(t, s)
	}
	first, client := start("")
	etcd, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
	must(t, err)
	defer etcd.Close()
	for i := 0; ; i++ {
		if _, err := etcd.Put(t.Context(), fmt.Sprint("other", i), strings.Repeat("x", 1<<20)); err != nil {
			break
		}
	}
	lease := func() metav1.MicroTime {
		all, err := client.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=tidemark", ResourceVersion: "0"})
		must(t, err)
		if len(all.Items) != 1 {
			t.Fatalf("the Leases: %v", all.Items)
		}
		return *all.Items[0].Spec.RenewTime
	}
	await.True(t, "the Lease has expired", func() bool { return time.Since(lease().Time) > 41*time.Second })
	second, _ := start("31000-31100")
	lease() // is there
	_, err = etcd.Delete(t.Context(), "other", clientv3.WithPrefix())
	must(t, err)
	makeSpace(t, etcd)
	select {
	case <-second.Done():
		if !strings.Contains(second.Err().Error(), "another range of node ports") {
			t.Errorf("the second server has ended: %v", second.Err())
		}
	case <-first.Done():
		t.Errorf("the first server has ended: %v", first.Err())
	case <-time.After(2 * time.Minute):
		t.Error("the second server goes on")
	}
}

// files writes a certificate authority, and certificates that it signs for this machine.
func files(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, kind string, bytes []byte) {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
	}
	parent := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, parent, parent, authority.Public(), authority)
	must(t, err)
	write("ca.crt", "CERTIFICATE", der)
	for i, name := range names {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), authority)
		must(t, err)
		write(name+".crt", "CERTIFICATE", der)
		der, err = x509.MarshalECPrivateKey(key)
		must(t, err)
		write(name+".key", "EC PRIVATE KEY", der)
	}
	return dir
}

// TestTLS reaches etcd with TLS, and with certificates on both sides.
func TestTLS(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dir, other := files(t, "etcd", "client"), files(t, "client")
	c := startCluster(t, 1, func(o *embed.Config) {
		o.ListenClientUrls[0].Scheme, o.AdvertiseClientUrls[0].Scheme = "https", "https"
		o.ClientTLSInfo = transport.TLSInfo{CertFile: dir + "/etcd.crt", KeyFile: dir + "/etcd.key", TrustedCAFile: dir + "/ca.crt", ClientCertAuth: true}
	})
	servers := []string{strings.Replace(c.servers()[0], "http:", "https:", 1)}
	for what, cluster := range map[string]etcdstore.Cluster{
		"":                       {CAFile: dir + "/ca.crt", CertFile: dir + "/client.crt", KeyFile: dir + "/client.key"},
		"certificate":            {CAFile: other + "/ca.crt", CertFile: dir + "/client.crt", KeyFile: dir + "/client.key"},
		"tls":                    {CAFile: dir + "/ca.crt"},
		"tls: unknown authority": {CAFile: dir + "/ca.crt", CertFile: other + "/client.crt", KeyFile: other + "/client.key"},
	} {
		cluster.Servers, cluster.CompactionInterval = servers, -1
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		s := &tidemark.Server{InProcess: true, Storage: &cluster}
		err := s.Start(ctx)
		cancel()
		if what == "" {
			must(t, err)
			client, err := kubernetes.NewForConfig(s.RESTConfig())
			must(t, err)
			_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			must(t, err)
		} else if err == nil || !strings.Contains(err.Error(), "etcd") {
			t.Errorf("%s: got the error %v", what, err)
		} else {
			t.Logf("%s: %v", what, err)
		}
		must(t, s.Close())
	}
}
