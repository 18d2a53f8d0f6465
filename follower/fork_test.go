package follower_test

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
)

// TestFork: a fork of a follower begins with the copy, and its writes reach neither the follower nor its server.
func TestFork(t *testing.T) {
	t.Parallel()
	p := primary(t, t.TempDir())
	f := start(t, following(p.RESTConfig(), t.TempDir()))
	made, err := maps(f)(t.Context(), "shared", "1")
	must(t, err)
	w, err := f.Root().Fork(t.Context(), tidemark.ForkOptions{})
	must(t, err)
	fork := kubernetes.NewForConfigOrDie(w.RESTConfig()).CoreV1().ConfigMaps("default")
	o, err := fork.Get(t.Context(), "shared", metav1.GetOptions{})
	must(t, err)
	if o.ResourceVersion != made.ResourceVersion {
		t.Errorf("the fork has resource version %s, want %s", o.ResourceVersion, made.ResourceVersion)
	}
	o.Data["v"] = "2"
	_, err = fork.Update(t.Context(), o, metav1.UpdateOptions{})
	must(t, err)
	for i := range 20 { // the server and the fork go on with the same resource versions
		_, err = maps(p)(t.Context(), strconv.Itoa(i), "1")
		must(t, err)
		_, err = fork.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-fork-" + strconv.Itoa(i)}}, metav1.CreateOptions{})
		must(t, err)
	}
	for name, s := range map[string]*tidemark.Server{"server": p, "follower": f} {
		o, err := clients(s).CoreV1().ConfigMaps("default").Get(t.Context(), "shared", metav1.GetOptions{})
		must(t, err)
		if o.Data["v"] != "1" {
			t.Errorf("the %s has the write of the fork", name)
		}
		if _, err := clients(s).CoreV1().ConfigMaps("default").Get(t.Context(), "of-fork-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the %s has an object of the fork: %v", name, err)
		}
	}
	if _, err := fork.Get(t.Context(), "1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the fork has an object that the server made later: %v", err)
	}
	must(t, w.Close())
	_, err = clients(f).CoreV1().ConfigMaps("default").Get(t.Context(), "19", metav1.GetOptions{})
	must(t, err)
}
