package integration_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestStorageQuota fills a server with Secrets up to StorageMaxBytes, restarts it
// with a lower limit, and frees memory.
func TestStorageQuota(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	start := func(quota int64) (*tidemark.Server, *kubernetes.Clientset) {
		s := &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Memory: tidemark.Memory{MaxObjectBytes: quota}}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s, kubernetes.NewForConfigOrDie(s.RESTConfig())
	}
	s, c := start(4 << 20)
	ctx := t.Context()
	if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	create := func(i int) error {
		_, err := c.CoreV1().Secrets("full").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i), Finalizers: []string{"example.com/hold"}},
			Data:       map[string][]byte{"v": noise},
		}, metav1.CreateOptions{})
		return err
	}
	n := 0
	var err error
	for ; n < 100; n++ {
		if err = create(n); err != nil {
			break
		}
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusInsufficientStorage || status.Status().Reason != "InsufficientStorage" ||
		!strings.Contains(err.Error(), "storage quota") || !strings.Contains(err.Error(), "--storage-max-bytes") {
		t.Fatalf("the create after %d: %v", n, err)
	}
	if want := 4 << 20 / base64.StdEncoding.EncodedLen(len(noise)); n < want-4 || n > want {
		t.Errorf("%d Secrets fit, want about %d", n, want)
	}
	_, page := servertest.Get(t, s.RESTConfig(), "/readyz?verbose")
	if !strings.Contains(page, "[+]storage-quota ok, ") {
		t.Errorf("readyz does not say that storage is nearly full: %s", page)
	}
	if _, page := servertest.Get(t, s.RESTConfig(), "/metrics"); !strings.Contains(page, "tidemark_storage_limit_bytes 4.194304e+06") || !strings.Contains(page, "tidemark_storage_refused_writes_total 1") {
		t.Error("the metrics lack the quota")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, c = start(1 << 20) // less than is stored
	if list, err := c.CoreV1().Secrets("full").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != n {
		t.Fatalf("a list at the quota: %v", err)
	}
	for i := range n { // with finalizers: marks, then the removal of the finalizer
		name := fmt.Sprintf("s%d", i)
		if err := c.CoreV1().Secrets("full").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("the deletion of a Secret with a finalizer: %v", err)
		}
		secret, err := c.CoreV1().Secrets("full").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secret.Finalizers = nil
		if _, err := c.CoreV1().Secrets("full").Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("the removal of a finalizer: %v", err)
		}
	}
	if err := c.CoreV1().Namespaces().Delete(ctx, "full", metav1.DeleteOptions{}); err != nil {
		t.Fatalf("the deletion of the namespace: %v", err)
	}
	if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a create when there is room again: %v", err)
	}
}
