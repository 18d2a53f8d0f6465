package features_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/features"
)

// TestResolve checks the errors and the defaults of versions and gates, as kube-apiserver v1.37.2 has them.
func TestResolve(t *testing.T) {
	type set = map[string]bool
	for _, row := range []struct {
		emulated, compatible string
		gates                set
		want                 features.Versions
		wrong                string
	}{
		{"", "", nil, features.Versions{Emulated: 37, MinCompatible: 36}, ""},
		{"1.36", "", nil, features.Versions{Emulated: 36, MinCompatible: 35}, ""},
		{"kube=1.35", "1.35", nil, features.Versions{Emulated: 35, MinCompatible: 35}, ""},
		{"v1.34", "", nil, features.Versions{Emulated: 34, MinCompatible: 34}, ""},
		{"1.33", "", nil, features.Versions{Emulated: 33, MinCompatible: 33}, ""},
		{"1.32", "", nil, features.Versions{}, "emulation version 1.32 is not between [1.33, 1.37]"},
		{"1.38", "", nil, features.Versions{}, "emulation version 1.38 is not between [1.33, 1.37]"},
		{"1.36", "1.33", nil, features.Versions{}, "minCompatibilityVersion version 1.33 is not between [1.34, 1.36]"},
		{"1.36", "1.37", nil, features.Versions{}, "minCompatibilityVersion version 1.37 is not between [1.34, 1.36]"},
		{"1.36.1", "", nil, features.Versions{}, "patch version not allowed, got: 1.36.1"},
		{"abc", "", nil, features.Versions{}, `could not parse "abc" as version`},
		{"other=1.36", "", nil, features.Versions{}, "component not registered: other"},
		{"", "", set{"DRAPrioritizedList": true, "StorageVersionMigrator": false}, features.Versions{Emulated: 37, MinCompatible: 36}, ""},
		{"", "", set{"DRAPrioritizedList": false}, features.Versions{}, "cannot set feature gate DRAPrioritizedList to false, feature is locked to true"},
		{"", "", set{"SidecarContainers": true}, features.Versions{}, `no feature gate "SidecarContainers"`}, // 1.37 has removed it
		{"1.36", "", set{"SidecarContainers": true}, features.Versions{}, `no feature gate "SidecarContainers"`},
		{"1.36", "", set{"ManagedFieldsOptOut": true}, features.Versions{}, "cannot set feature gate ManagedFieldsOptOut to true, feature is PreAlpha at emulated version 1.36, min compatibility version 1.35"},
		{"1.36", "", set{"EmptyDirVolumeMode": true}, features.Versions{}, "cannot set feature gate EmptyDirVolumeMode to true, feature is PreAlpha at emulated version 1.36, min compatibility version 1.35"},
		{"", "", set{"AllAlpha": true}, features.Versions{}, "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload]"},
		{"", "", set{"AllAlpha": true, "GenericWorkload": true}, features.Versions{Emulated: 37, MinCompatible: 36}, ""},
	} {
		p, err := features.Resolve(features.Choice{Emulated: row.emulated, MinCompatible: row.compatible, Gates: row.gates})
		switch {
		case row.wrong != "":
			if err == nil || !strings.Contains(err.Error(), row.wrong) {
				t.Errorf("%q, %q, %v: %v, want %s", row.emulated, row.compatible, row.gates, err, row.wrong)
			}
		case err != nil:
			t.Errorf("%q, %q, %v: %v", row.emulated, row.compatible, row.gates, err)
		case p.Versions != row.want:
			t.Errorf("%q, %q: %+v", row.emulated, row.compatible, p.Versions)
		}
	}
}

func resolve(t *testing.T, emulated string, gates map[string]bool) *features.Profile {
	t.Helper()
	p, err := features.Resolve(features.Choice{Emulated: emulated, Gates: gates})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestShared checks that equal choices are one profile.
func TestShared(t *testing.T) {
	if a, b := resolve(t, "1.36", map[string]bool{"WatchList": false}), resolve(t, "v1.36", map[string]bool{"WatchList": false}); a != b {
		t.Error("equal choices are two profiles")
	}
	if resolve(t, "", nil) != features.Default() || resolve(t, "1.37", nil) != features.Default() {
		t.Error("the newest version is not the default profile")
	}
}

// TestEnabled checks values that depend on the version, and those that AllAlpha and AllBeta set.
func TestEnabled(t *testing.T) {
	for _, row := range []struct {
		name, version string
		gates         map[string]bool
		want          bool
	}{
		{"HPAGeneration", "", nil, true},
		{"HPAGeneration", "1.36", nil, false},
		{"MutatingAdmissionPolicy", "1.36", nil, true},
		{"MutatingAdmissionPolicy", "1.35", nil, false},
		{"CBORServingAndStorage", "", map[string]bool{"AllAlpha": true, "GenericWorkload": true}, true},
		{"CBORServingAndStorage", "", map[string]bool{"AllAlpha": true, "GenericWorkload": true, "CBORServingAndStorage": false}, false},
		{"WatchListCompression", "", map[string]bool{"AllBeta": false}, false},
		{"WatchListCompression", "", map[string]bool{"AllBeta": false, "WatchListCompression": true}, true},
		{"ClusterTrustBundle", "", map[string]bool{"AllBeta": false}, true}, // it is stable
		{"ClusterTrustBundle", "", map[string]bool{"ClusterTrustBundle": false, "ClusterTrustBundleProjection": false, "PodCertificateRequest": false}, false},
		{"Nothing", "", nil, false},
	} {
		if got := resolve(t, row.version, row.gates).Enabled(row.name); got != row.want {
			t.Errorf("%s in %q with %v: %t", row.name, row.version, row.gates, got)
		}
	}
	p, err := features.Resolve(features.Choice{MinCompatible: "1.37"})
	if err != nil || !p.Enabled("DRAFractionalCapacityRange") || features.Default().Enabled("DRAFractionalCapacityRange") {
		t.Errorf("a default that depends on the compatible version: %v", err)
	}
}

// TestGates checks stages that other parts rely on, and gates without effect.
func TestGates(t *testing.T) {
	for name, want := range map[string]features.Gate{
		features.CBOR:                {Stage: features.Alpha},
		features.UnsafeDeletion:      {Stage: features.Beta, On: true},
		"ClusterTrustBundle":         {Stage: features.Stable, On: true},
		"DRAFractionalCapacityRange": {Stage: features.Beta},
		features.UnmanagedResponses:  {Stage: features.Alpha}, // of 1.38
		"KubeProxyIPVS":              {Stage: features.Deprecated, On: true},
	} {
		if got, ok := features.Default().Of(name); !ok || got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	p := resolve(t, "", map[string]bool{features.CBOR: true, "WatchList": false, "EtcdRangeStream": true, "EmptyDirVolumeMode": true})
	if got := p.WithoutEffect(); !slices.Equal(got, []string{"WatchList"}) {
		t.Errorf("without effect: %q", got)
	}
}

// TestRecorded compares all gates with those of kube-apiserver with --emulated-version.
func TestRecorded(t *testing.T) {
	text, err := os.ReadFile("testdata/enabled.tsv")
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{"1.34", "1.35", "1.36", "1.37"}
	known := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		column := strings.Fields(line)
		for i, v := range versions {
			p := resolve(t, v, nil)
			g, ok := p.Of(column[0])
			got := "0"
			switch {
			case !ok || g.Stage == features.Unknown:
				got = "-"
			case p.Enabled(column[0]):
				got = "1"
			}
			if got != column[i+1] {
				t.Errorf("%s in %s: %s, want %s", column[0], v, got, column[i+1])
			}
		}
		known++
	}
	if known != 254 {
		t.Errorf("%d gates were recorded", known)
	}
}

// TestAPIs checks kinds and fields by version and gate.
func TestAPIs(t *testing.T) {
	old, off := resolve(t, "1.36", nil), resolve(t, "", map[string]bool{"StorageVersionMigrator": false})
	for _, row := range []struct {
		p             *features.Profile
		version, kind string
		want          bool
	}{
		{features.Default(), "storagemigration.k8s.io/v1", "StorageVersionMigration", true},
		{old, "storagemigration.k8s.io/v1", "StorageVersionMigration", false},
		{off, "storagemigration.k8s.io/v1", "StorageVersionMigration", false},
		{old, "v1", "Pod", true},
		{resolve(t, "1.33", nil), "resource.k8s.io/v1", "ResourceClaim", false},
		{old, "apiextensions.k8s.io/v1", "CustomResourceDefinition", true},
	} {
		if got := row.p.Serves(row.version, row.kind); got != row.want {
			t.Errorf("%s %s in 1.%d: %t", row.version, row.kind, row.p.Emulated, got)
		}
	}
	if got := features.Default().Disabled("core/v1", "EmptyDirVolumeSource", "mode"); got != "EmptyDirVolumeMode" {
		t.Errorf("emptyDir.mode needs %q", got)
	}
	if a, b := features.Default().Disabled("apps/v1", "RollingUpdateStatefulSetStrategy", "maxUnavailable"), old.Disabled("apps/v1", "RollingUpdateStatefulSetStrategy", "maxUnavailable"); a != "" || b != features.MaxUnavailable {
		t.Errorf("maxUnavailable needs %q, and %q in 1.36", a, b)
	}
}

// TestDiff checks differences of versions of each sort.
func TestDiff(t *testing.T) {
	got := map[features.Change]bool{}
	for _, c := range features.Diff(resolve(t, "1.36", nil), features.Default()) {
		got[c] = true
		if c.Name == features.UnmanagedResponses {
			t.Errorf("1.37 does not have %+v", c)
		}
	}
	for _, want := range []features.Change{
		{'+', "kind", "storagemigration.k8s.io/v1 StorageVersionMigration", "StorageVersionMigrator is on"},
		{'+', "kind", "lifecycle.k8s.io/v1alpha1 EvictionRequest", "served if asked for"},
		{'+', "field", "core/v1 EmptyDirVolumeSource.mode", "EmptyDirVolumeMode is off"},
		{'~', "field", "storage/v1 CSIDriverSpec.preventPodSchedulingIfMissing", "VolumeLimitScaling is off -> VolumeLimitScaling is on"},
		{'+', "gate", "HPAGeneration", "beta, on"},
		{'~', "gate", "MaxUnavailableStatefulSet", "beta, off -> beta, on"},
		{'~', "gate", "DRAPrioritizedList", "stable, on -> stable, on, locked"},
		{'-', "gate", "SidecarContainers", "stable, on, locked"},
	} {
		if !got[want] {
			t.Errorf("there is no %+v", want)
		}
	}
	if same := features.Diff(features.Default(), features.Default()); len(same) > 0 {
		t.Errorf("a version differs from itself: %+v", same)
	}
	for _, c := range features.Diff(features.Default(), resolve(t, "1.36", nil)) {
		if c == (features.Change{'-', "gate", "HPAGeneration", "beta, on"}) {
			return
		}
	}
	t.Error("a gate does not go in the other direction")
}
