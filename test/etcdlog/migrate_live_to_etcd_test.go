package etcdlog_test

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/etcdstore"
)

// TestMigrateLiveToEtcd moves a server to etcd while clients write to it. Everything that was acknowledged before the
// server ended is in etcd, with its resource version.
func TestMigrateLiveToEtcd(t *testing.T) {
	t.Parallel()
	m := newMigrated(t)
	s := &tidemark.Server{Storage: &datadir.Dir{Path: m.path("data")}}
	s.Encryption.ProviderConfigFile = m.path("encryption.yaml")
	must(t, s.Start(t.Context()))
	must(t, s.WriteKubeconfig(m.path("data/kubeconfig")))
	var err error
	m.client, err = kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	m.custom, err = dynamic.NewForConfig(s.RESTConfig())
	must(t, err)
	middle := m.fill()

	c := exec.CommandContext(t.Context(), m.binary, "migrate", "--live", "--from="+m.path("data"), "--to=etcd-snapshot:"+m.path("snapshot.db"), "--encryption-provider-config="+m.path("encryption.yaml"))
	var out strings.Builder
	c.Stdout = &out
	messages, err := c.StderrPipe()
	must(t, err)
	must(t, c.Start())
	ctx, stopWrites := context.WithCancel(t.Context())
	defer stopWrites()
	var writing sync.WaitGroup
	written := make(chan struct{}, 1)
	writing.Go(func() { m.write(ctx, written) })
	var said strings.Builder
	for lines := bufio.NewScanner(messages); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if strings.Contains(lines.Text(), "Stop the server") {
			for range 100 { // later changes
				<-written
			}
			stopWrites()
			writing.Wait()
			break
		}
	}
	before := m.state()
	events := m.watched(middle, "last")
	must(t, s.Close())
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, &said, &out)
	}
	t.Log(out.String())
	if left, err := filepath.Glob(m.path(".*part")); err != nil || len(left) > 0 {
		t.Errorf("files stayed behind: %v, %v", left, err)
	}
	etcd := startCluster(t, 1, restore(t, m.path("snapshot.db")))
	m.compareWith(etcd)
	stop := m.serve(&tidemark.Server{Storage: &etcdstore.Cluster{Servers: etcd.servers(), CompactionInterval: -1, Path: m.path("etcd-files")}})
	defer stop()
	m.same("in etcd", before)
	if got := m.watched(middle, "last"); fmt.Sprint(got) != fmt.Sprint(events) {
		t.Errorf("a watch after %s in etcd:\n%v, want\n%v", middle, got, events)
	}
	m.conflicts(middle)
}

// write creates, changes and deletes ConfigMaps until stop ends. Each request has its response then. It sends a value
// for each write that is received in time.
func (m *migrated) write(stop context.Context, written chan<- struct{}) {
	defer close(written)
	maps, ctx := m.client.CoreV1().ConfigMaps("default"), m.t.Context()
	for i := 0; stop.Err() == nil; i++ {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("live-", i%50)}, Data: map[string]string{"i": fmt.Sprint(i)}}
		var err error
		switch i / 50 % 3 {
		case 0:
			_, err = maps.Create(ctx, c, metav1.CreateOptions{})
		case 1:
			_, err = maps.Update(ctx, c, metav1.UpdateOptions{})
		default:
			err = maps.Delete(ctx, c.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			m.t.Error(err)
			return
		}
		select {
		case written <- struct{}{}:
		default:
		}
	}
}
