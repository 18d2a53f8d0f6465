package tidemark_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestUpgrade opens a directory of version 0.1.0, which has format 2. The ConfigMap "a" was created with v=1 and
// patched to v=2, "gone" was created and deleted, and there is a Secret.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	dir := storetest.Unpack(t, "datadir/testdata/format2.tar.gz")
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, History: tidemark.History{Retention: 100 * 365 * 24 * time.Hour}})
	get := func(path string) string {
		t.Helper()
		code, body := servertest.Get(t, s.RESTConfig(), path)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
		return body
	}
	var now struct {
		Metadata struct{ ResourceVersion, UID string }
		Data     map[string]string
	}
	text := get(configMaps + "/a")
	if err := json.Unmarshal([]byte(text), &now); err != nil {
		t.Fatal(err)
	}
	if now.Data["v"] != "2" || now.Metadata.UID != "4077b056-be14-40a6-9536-03cb0635ec33" || now.Metadata.ResourceVersion != "213" {
		t.Errorf("the ConfigMap is %s", text)
	}
	if text := get("/api/v1/namespaces/default/secrets/s"); !strings.Contains(text, `"k":"dg=="`) {
		t.Errorf("the Secret is %s", text)
	}
	if code, _ := servertest.Get(t, s.RESTConfig(), configMaps+"/gone"); code != http.StatusNotFound {
		t.Errorf("a deleted ConfigMap: %d", code)
	}
	// The state before the patch is still in the history.
	if text := get(configMaps + "?resourceVersion=212&resourceVersionMatch=Exact"); !strings.Contains(text, `"data":{"v":"1"}`) {
		t.Errorf("the state before the patch: %s", text)
	}
	must(t, s.RESTConfig(), http.StatusOK, "PATCH", configMaps+"/a", `{"data":{"v":"3"}}`)
	if text := get(configMaps + "/a"); !strings.Contains(text, `"v":"3"`) {
		t.Errorf("after a write: %s", text)
	}
}

// TestUpgradeForks opens a directory of format 3, which has a kept fork. The ConfigMap "a" has v=1 in the server. In the
// fork "staging" it was patched to v=2, and "b" was created.
func TestUpgradeForks(t *testing.T) {
	t.Parallel()
	dir := storetest.Unpack(t, "datadir/testdata/format3.tar.gz")
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, History: tidemark.History{Retention: 100 * 365 * 24 * time.Hour}})
	for path, want := range map[string]string{
		configMaps + "/a":                   `"data":{"v":"1"}`,
		"/fork/staging" + configMaps + "/a": `"data":{"v":"2"}`,
		"/fork/staging" + configMaps + "/b": `"data":{"v":"1"}`,
	} {
		code, body := servertest.Get(t, s.RESTConfig(), path)
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
	servertest.WantCode(t, s.RESTConfig(), configMaps+"/b", http.StatusNotFound, `configmaps "b" not found`)
	must(t, s.RESTConfig(), http.StatusOK, "PATCH", "/fork/staging"+configMaps+"/a", `{"data":{"v":"3"}}`)
}

// TestUpgradeKubernetes opens a directory that a server of Kubernetes 1.36 wrote. Its objects have the fields and defaults
// of 1.37 at once, without a new version; kinds that 1.36 stored in another version work.
func TestUpgradeKubernetes(t *testing.T) {
	t.Parallel()
	dir := storetest.Unpack(t, "datadir/testdata/kubernetes-1.36.tar.gz")
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, History: tidemark.History{Retention: 100 * 365 * 24 * time.Hour}})
	const shop = "/namespaces/shop/"
	type object struct {
		Metadata struct{ ResourceVersion string }
	}
	read := func(path string) (version, text string) {
		t.Helper()
		code, text := servertest.Get(t, s.RESTConfig(), path)
		var o object
		if err := json.Unmarshal([]byte(text), &o); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %v %s", path, code, err, text)
		}
		return o.Metadata.ResourceVersion, text
	}
	for path, want := range map[string]string{
		"/api/v1" + shop + "configmaps/a":                                            `"data":{"v":"1"}`,
		"/api/v1" + shop + "secrets/s":                                               `"data":{"k":"dg=="}`,
		"/api/v1" + shop + "pods/p":                                                  `"phase":"Pending"`,
		"/api/v1" + shop + "services/svc":                                            `"clusterIP":"`,
		"/apis/apps/v1" + shop + "deployments/d":                                     `"replicas":2`,
		"/apis/apps/v1" + shop + "statefulsets/st":                                   `"maxUnavailable":1`,
		"/apis/autoscaling/v2" + shop + "horizontalpodautoscalers/h":                 `"maxReplicas":3`,
		"/apis/batch/v1" + shop + "cronjobs/cj":                                      `"schedule":"* * * * *"`,
		"/apis/storage.k8s.io/v1/csidrivers/drv.example.com":                         `"preventPodSchedulingIfMissing":false`,
		"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/map":        `"apiVersion":"admissionregistration.k8s.io/v1"`,
		"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/mapb": `"policyName":"map"`,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node":                `"clustertrustbundles"`,
	} {
		before, text := read(path)
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s: %s", path, want, text)
		}
		must(t, s.RESTConfig(), http.StatusOK, "PATCH", path, `{}`)
		if after, _ := read(path); after != before {
			t.Errorf("%s: a write that changes nothing makes version %s of %s", path, after, before)
		}
	}
	// The policy mutates, and kinds of 1.37 are served.
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/api/v1"+shop+"configmaps", `{"metadata":{"name":"b"}}`)
	if _, text := read("/api/v1" + shop + "configmaps/b"); !strings.Contains(text, `"mutated":"yes"`) {
		t.Errorf("the policy has not changed %s", text)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/apis/storagemigration.k8s.io/v1/storageversionmigrations", `{"metadata":{"name":"m"},"spec":{"resource":{"group":"","resource":"configmaps"}}}`)
	must(t, s.RESTConfig(), http.StatusOK, "PATCH", "/apis/apps/v1"+shop+"statefulsets/st", `{"spec":{"replicas":3}}`)
}

// TestUpgradeEveryFormat: there is a directory of each format that the documents name, so that a program that changes the
// format keeps one of the format before.
func TestUpgradeEveryFormat(t *testing.T) {
	text, err := os.ReadFile("docs/formats/data-directory.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| format | |\n|---|---|\n")
	n := 0
	for ; strings.HasPrefix(table, fmt.Sprintf("| %d | ", n+1)); n++ {
		if _, err := os.Stat(fmt.Sprintf("datadir/testdata/format%d.tar.gz", n+1)); err != nil {
			t.Errorf("no directory of format %d is kept, for a test that opens it: %v", n+1, err)
		}
		_, table, _ = strings.Cut(table, "\n")
	}
	if n < 3 {
		t.Errorf("the document has %d formats", n)
	}
}
