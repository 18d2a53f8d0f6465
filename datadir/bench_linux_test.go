package datadir_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// BenchmarkDurableWrite creates ConfigMaps of 1 KiB from one client. After each it writes
// and syncs as many bytes to a file next to the log, so that both use the same disk. It
// reports both medians, and the server's overhead over 1.2 syncs.
func BenchmarkDurableWrite(b *testing.B) {
	dir := b.TempDir()
	s := tidemark.Server{Storage: &datadir.Dir{Path: filepath.Join(dir, "data")}}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	value := bytes.Repeat([]byte("x"), 1024)
	var writes, syncs []time.Duration
	for i := 0; b.Loop(); i++ {
		body := fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c%d"},"data":{"v":"%s"}}`, i, value)
		begin := time.Now()
		resp, err := c.Post(s.URL()+"/api/v1/namespaces/default/configmaps", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		response, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusCreated {
			b.Fatalf("%s: %s, %v", resp.Status, response, err)
		}
		written := time.Now()
		if _, err := f.Write(response); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		writes, syncs = append(writes, written.Sub(begin)), append(syncs, time.Since(written))
	}
	slices.Sort(writes)
	slices.Sort(syncs)
	write, sync := writes[len(writes)/2], syncs[len(syncs)/2]
	b.ReportMetric(float64(write.Microseconds()), "p50-µs")
	b.ReportMetric(float64(sync.Microseconds()), "sync-p50-µs")
	b.ReportMetric(float64((write - sync*6/5).Microseconds()), "added-µs")
}
