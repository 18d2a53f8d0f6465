package etcdlog_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestSeveralHistory: each server on one etcd has the changes of all, and the states at their revisions. It knows the times of
// the changes that it has seen, and the users of its own ones. A server that was started later knows neither.
func TestSeveralHistory(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 1, nil)
	all, clients := severalServers(t, c, 2)
	ctx := t.Context()
	seen := func(i int) { // the server has read the changes of the others
		t.Helper()
		_, err := clients[i].CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		must(t, err)
	}
	_, err := clients[0].CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"k": "1"}}, metav1.CreateOptions{})
	must(t, err)
	seen(1)
	changed, err := clients[1].CoreV1().ConfigMaps("default").Patch(ctx, "m", types.MergePatchType, []byte(`{"data":{"k":"2"}}`), metav1.PatchOptions{})
	must(t, err)
	seen(0)
	must(t, clients[0].CoreV1().ConfigMaps("default").Delete(ctx, "m", metav1.DeleteOptions{}))
	seen(1)
	late := &tidemark.Server{InProcess: true, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: sameFiles(t, all[0].Storage.(*etcdstore.Cluster).Path)}}
	clients = append(clients, begin(t, late))

	var times []string
	for i, own := range []string{"delete create", "patch", ""} {
		var verbs, fields []string
		for _, change := range changesOf(t, clients[i], "m") {
			if change.Verb != "" {
				verbs = append(verbs, change.Verb)
			}
			if (change.User != "") != (change.Verb != "") {
				t.Errorf("server %d: %+v", i, change)
			}
			if known := !strings.HasPrefix(change.Time, "0001-"); known != (i < 2) {
				t.Errorf("server %d: the time of %s is %s", i, change.Revision, change.Time)
			}
			if i == 1 {
				times = append(times, change.Time)
			}
			fields = append(fields, fmt.Sprint(len(change.Fields)))
		}
		if got := strings.Join(verbs, " "); got != own || len(fields) != 3 {
			t.Errorf("server %d knows the verbs %q of %d changes, want %q of 3", i, got, len(fields), own)
		}
		if code, text := at(t, clients[i], changed.ResourceVersion); code != http.StatusOK || !strings.Contains(text, `"k":"2"`) {
			t.Errorf("server %d: at %s: %d %s", i, changed.ResourceVersion, code, text)
		}
	}
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusGone} {
		if code, text := at(t, clients[i], url.PathEscape(times[1])); code != want {
			t.Errorf("server %d: at %s: %d %s, want %d", i, times[1], code, text, want)
		}
	}
}

type pastChange struct {
	Revision, Time, Verb, User string
	Fields                     []struct{ Path string }
}

// changesOf returns the changes of a ConfigMap, the newest first.
func changesOf(t *testing.T, c kubernetes.Interface, name string) []pastChange {
	t.Helper()
	b, err := c.CoreV1().RESTClient().Get().AbsPath("/apis/tidemark.dev/v1/namespaces/default/changes").
		Param("fieldSelector", "resource=configmaps,name="+name).DoRaw(t.Context())
	must(t, err)
	var l struct{ Items []pastChange }
	must(t, json.Unmarshal(b, &l))
	return l.Items
}

// at reads the ConfigMap m as of an instant.
func at(t *testing.T, c kubernetes.Interface, instant string) (code int, text string) {
	t.Helper()
	r := c.CoreV1().RESTClient().Get().RequestURI("/at/" + instant + "/api/v1/namespaces/default/configmaps/m").Do(t.Context())
	r.StatusCode(&code)
	b, err := r.Raw()
	if err != nil {
		return code, err.Error()
	}
	return code, string(b)
}
