package tidemark_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const (
	autoscalersPath  = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	statefulSetsPath = "/apis/apps/v1/namespaces/default/statefulsets"
	clusterRolesPath = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
	bundleRole       = "system:cluster-trust-bundle-discovery"
	autoscaler       = `{"metadata":{"name":"a"},"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`
	statefulSet      = `{"metadata":{"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
)

// versioned is what differs between two versions of Kubernetes.
type versioned struct {
	minor       string // of /version
	bundles     int    // the code of a list of ClusterTrustBundles
	policies    int    // and of MutatingAdmissionPolicies
	role        int    // and of a role of ClusterTrustBundles
	generation  int64  // of a new HorizontalPodAutoscaler
	unavailable string // maxUnavailable of a new StatefulSet
}

var of = map[string]versioned{
	"1.37": {"37", 200, 200, 200, 1, "1"},
	"1.36": {"36", 404, 200, 404, 0, ""},
	"1.35": {"35", 404, 404, 404, 0, ""},
}

// checkVersion checks that a server has a version.
func checkVersion(t *testing.T, c *rest.Config, want versioned) {
	t.Helper()
	var got versioned
	v := get[struct{ Minor, EmulationMinor string }](t, c, "/version")
	got.minor = v.EmulationMinor
	got.bundles, _ = send(t, c, "GET", "/apis/certificates.k8s.io/v1/clustertrustbundles", "")
	got.policies, _ = send(t, c, "GET", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", "")
	got.role, _ = send(t, c, "GET", clusterRolesPath+bundleRole, "")
	var made struct {
		Metadata struct{ Generation int64 }
		Spec     struct {
			UpdateStrategy struct {
				RollingUpdate struct{ MaxUnavailable json.Number }
			}
		}
	}
	if err := json.Unmarshal([]byte(must(t, c, http.StatusCreated, "POST", autoscalersPath, autoscaler)), &made); err != nil {
		t.Fatal(err)
	}
	got.generation = made.Metadata.Generation
	if err := json.Unmarshal([]byte(must(t, c, http.StatusCreated, "POST", statefulSetsPath, statefulSet)), &made); err != nil {
		t.Fatal(err)
	}
	got.unavailable = made.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String()
	if got != want || v.Minor != "37" {
		t.Errorf("%+v, want %+v", got, want)
	}
	for path, served := range map[string]bool{"/apis/storagemigration.k8s.io/v1": want.minor == "37", "/apis/apps/v1": true} {
		_, index := send(t, c, "GET", "/openapi/v3", "")
		if code, _ := send(t, c, "GET", path, ""); (code == 200) != served || strings.Contains(index, `"`+path[1:]+`"`) != served {
			t.Errorf("%s in 1.%s: %d, and in the index of OpenAPI: %t", path, want.minor, code, strings.Contains(index, `"`+path[1:]+`"`))
		}
	}
}

// TestVersionsOfWorlds: worlds of several versions of Kubernetes are in one process, also as forks of one server.
func TestVersionsOfWorlds(t *testing.T) {
	newest := servertest.Start(t, &tidemark.Server{InProcess: true})
	older := servertest.Start(t, &tidemark.Server{InProcess: true, KubernetesVersion: "1.36"})
	checkVersion(t, older.RESTConfig(), of["1.36"])
	for _, version := range []string{"1.35", "1.36", "1.37"} {
		for name, s := range map[string]*tidemark.Server{"newest": newest, "older": older} {
			f := mustFork(t, s.Root(), tidemark.ForkOptions{KubernetesVersion: version})
			c := f.RESTConfig()
			if name == "older" { // it has the objects of the check above
				must(t, c, http.StatusOK, "DELETE", autoscalersPath+"/a", "")
				must(t, c, http.StatusOK, "DELETE", statefulSetsPath+"/s", "")
			}
			checkVersion(t, c, of[version])
			child := mustFork(t, f, tidemark.ForkOptions{})
			if v := get[struct{ EmulationMinor string }](t, child.RESTConfig(), "/version"); v.EmulationMinor != of[version].minor {
				t.Errorf("a fork of a fork of 1.%s is of 1.%s", of[version].minor, v.EmulationMinor)
			}
		}
	}
	checkVersion(t, newest.RESTConfig(), of["1.37"])
	if _, err := newest.Root().Fork(t.Context(), tidemark.ForkOptions{KubernetesVersion: "1.12"}); err == nil || !strings.Contains(err.Error(), "1.12 is not between") {
		t.Errorf("a fork of an unknown version: %v", err)
	}
}

// TestVersionOfData: data of a newer version stays readable in an older one, and keeps its fields when it is written there.
func TestVersionOfData(t *testing.T) {
	const driver, bundles = "/apis/storage.k8s.io/v1/csidrivers", "/apis/certificates.k8s.io/v1/clustertrustbundles"
	dir := t.TempDir()
	start := func(version string) *tidemark.Server {
		s := &tidemark.Server{InProcess: true, Storage: &datadir.Dir{Path: dir}, Controllers: []string{"-*"}, KubernetesVersion: version}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	field := func(c *rest.Config, name string) string {
		text := must(t, c, http.StatusOK, "GET", driver+"/"+name, "")
		_, value, _ := strings.Cut(text, `"preventPodSchedulingIfMissing":`)
		return strings.TrimRight(value[:min(5, len(value))], ",}")
	}

	s := start("")
	must(t, s.RESTConfig(), http.StatusCreated, "POST", driver, `{"metadata":{"name":"old"},"spec":{"preventPodSchedulingIfMissing":true}}`)
	must(t, s.RESTConfig(), http.StatusOK, "GET", bundles, "")
	servertest.Stop(t, s)

	s = start("1.36")
	c := s.RESTConfig()
	must(t, c, http.StatusNotFound, "GET", bundles, "")
	if got := field(c, "old"); got != "true" {
		t.Errorf("the field of the newer version is %q", got)
	}
	must(t, c, http.StatusOK, "PATCH", driver+"/old", `{"metadata":{"labels":{"a":"b"}}}`)
	if got := field(c, "old"); got != "true" {
		t.Errorf("after a write, the field of the newer version is %q", got)
	}
	must(t, c, http.StatusCreated, "POST", driver, `{"metadata":{"name":"new"},"spec":{"preventPodSchedulingIfMissing":true}}`)
	if got := field(c, "new"); got != "" {
		t.Errorf("a new object has the field of a newer version: %q", got)
	}
	servertest.Stop(t, s)

	s = start("1.37")
	defer servertest.Stop(t, s)
	must(t, s.RESTConfig(), http.StatusOK, "GET", bundles, "")
	must(t, s.RESTConfig(), http.StatusOK, "GET", clusterRolesPath+bundleRole, "")
	if got := field(s.RESTConfig(), "old"); got != "true" {
		t.Errorf("the field in the newer version again: %q", got)
	}
}

// TestGatesOfKinds: a gate switches a kind, its roles and its documents off.
func TestGatesOfKinds(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{InProcess: true, FeatureGates: map[string]bool{"StorageVersionMigrator": false, "EmptyDirVolumeMode": true}})
	c := s.RESTConfig()
	for path, code := range map[string]int{
		"/apis/storagemigration.k8s.io/v1/storageversionmigrations":                   404,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.storagemigration.k8s.io":      404,
		clusterRolesPath + "system:controller:storage-version-migrator-controller":    404,
		clusterRolesPath + "system:controller:podcertificaterequestcleaner":           200,
		"/apis/certificates.k8s.io/v1/clustertrustbundles":                            200,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.certificates.k8s.io":          200,
		"/openapi/v3/apis/storagemigration.k8s.io/v1":                                 404,
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/" + bundleRole:        200,
		"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?limit=1":     200,
		"/apis/resource.k8s.io/v1/devicetaintrules":                                   200,
		"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers":            200,
		"/apis/storage.k8s.io/v1/csinodes":                                            200,
		"/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests":      200,
		"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings":       200,
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/system-nodes":              200,
		"/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical":             200,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.admissionregistration.k8s.io": 200,
	} {
		if got, text := send(t, c, "GET", path, ""); got != code {
			t.Errorf("GET %s: %d, want %d: %.200s", path, got, code, text)
		}
	}
	const pods = "/api/v1/namespaces/default/pods"
	must(t, c, http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"own"}}`)
	text := must(t, c, http.StatusCreated, "POST", pods, `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"own","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","livenessProbe":{"httpGet":{"port":80,"protocol":"h2c"}}}],"volumes":[{"name":"v","emptyDir":{"mode":7}}]}}`)
	if !strings.Contains(text, `"mode":7`) || strings.Contains(text, `"protocol":"h2c"`) {
		t.Errorf("the fields of two features, of which one is on: %s", text)
	}
}
