package features_test

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/features"
)

func TestCheck(t *testing.T) {
	for _, row := range []struct {
		name  string
		on    bool
		wrong string
	}{
		{"CBORServingAndStorage", true, ""},
		{"StorageVersionMigrator", false, ""}, // stable, and not locked
		{"DRAPrioritizedList", true, ""},
		{"DRAPrioritizedList", false, "cannot set feature gate DRAPrioritizedList to false, feature is locked to true"},
		{"SidecarContainers", true, `no feature gate "SidecarContainers"`}, // 1.37 has removed it
	} {
		err := features.Check(map[string]bool{row.name: row.on})
		if row.wrong == "" && err != nil || row.wrong != "" && (err == nil || !strings.Contains(err.Error(), row.wrong)) {
			t.Errorf("%s=%t: %v", row.name, row.on, err)
		}
	}
}

// TestGates checks defaults and stages that other parts rely on.
func TestGates(t *testing.T) {
	for name, want := range map[string]features.Gate{
		features.CBOR:                {Stage: features.Alpha},
		features.UnsafeDeletion:      {Stage: features.Beta, On: true},
		"ClusterTrustBundle":         {Stage: features.Stable, On: true},
		"DRAFractionalCapacityRange": {Stage: features.Beta},
		"KubeProxyIPVS":              {Stage: features.Deprecated, On: true},
	} {
		if got, ok := features.Of(name); !ok || got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	set := map[string]bool{features.CBOR: true, "WatchList": false, "EtcdRangeStream": true}
	if got := features.WithoutEffect(set); len(got) != 1 || got[0] != "WatchList" {
		t.Errorf("without effect: %q", got)
	}
}
