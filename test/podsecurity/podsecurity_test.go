// Package podsecurity has upstream's conformance suite of the Pod Security Standards, and its fixtures
// against a server: those of the module k8s.io/pod-security-admission (Apache License 2.0).
package podsecurity

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/pod-security-admission/test"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestConformance is the suite that upstream runs against a server.
func TestConformance(t *testing.T) {
	tier.Full(t)
	test.Run(t, test.Options{ClientConfig: servers.Quick(servers.Start(t).RESTConfig())})
}

// fixtures returns the directory of the Pods that upstream's suite has made, for each version.
func fixtures(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "test", "testdata")
}

// fixture is a Pod, which a level of a version allows or not.
type fixture struct {
	level, version string
	allowed        bool
	name           string
	text           []byte
}

func readFixtures(t *testing.T) (all []fixture) {
	t.Helper()
	root := fixtures(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		parts := strings.Split(filepath.ToSlash(name), "/")
		text = bytes.Replace(text, []byte("name: "+d.Name()[:len(d.Name())-len(".yaml")]), []byte("name: test"), 1) // some are no names of Pods
		all = append(all, fixture{level: parts[0], version: parts[1], allowed: parts[2] == "pass", name: name, text: text})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 4000 {
		t.Fatalf("there are %d fixtures", len(all))
	}
	return all
}

// TestFixtures: the plugin decides on every Pod of upstream's fixtures as upstream does. The labels of
// a namespace name the level and the version.
func TestFixtures(t *testing.T) {
	tier.Full(t)
	c := servers.Quick(servers.Start(t).RESTConfig())
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	all := readFixtures(t)
	made := map[string]bool{}
	for _, f := range all {
		name := namespaceOf(f)
		if made[name] {
			continue
		}
		made[name] = true
		labels := map[string]string{"pod-security.kubernetes.io/enforce": f.level, "pod-security.kubernetes.io/enforce-version": f.version}
		if _, err := k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	decide(t, c, all, namespaceOf, func(f fixture, code int, message string) {
		switch {
		case f.allowed && code != http.StatusCreated, !f.allowed && code == http.StatusCreated:
			t.Errorf("%s: %d %s", f.name, code, message)
		case !f.allowed && code == http.StatusForbidden && !strings.Contains(message, fmt.Sprintf(`violates PodSecurity "%s:%s": `, f.level, f.version)):
			t.Errorf("%s: %s", f.name, message)
		}
	})
}

func namespaceOf(f fixture) string {
	return f.level + "-" + strings.ReplaceAll(f.version, ".", "-")
}

// decide creates the Pods of fixtures, as dry-runs.
func decide(t *testing.T, c *rest.Config, all []fixture, namespace func(fixture) string, response func(f fixture, code int, message string)) {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}, Handler: "any"}
	if _, err := k.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.NodeV1().RuntimeClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}) })
	work := make(chan fixture)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for f := range work {
				code := 0
				r := k.CoreV1().RESTClient().Post().Namespace(namespace(f)).Resource("pods").Param("dryRun", "All").
					SetHeader("Content-Type", "application/yaml").Body(f.text).Do(context.WithoutCancel(t.Context())).StatusCode(&code)
				message := ""
				if err := r.Error(); err != nil {
					message = err.Error()
				}
				response(f, code, message)
			}
		})
	}
	for _, f := range all {
		work <- f
	}
	close(work)
	wait.Wait()
}
