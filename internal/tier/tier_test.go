package tier

import "testing"

// TestOnly: the change tier divides the tests of a package between its two runs, and no other tier leaves one out.
func TestOnly(t *testing.T) {
	for _, tier := range []string{"", "quick", "full"} {
		for _, detector := range []bool{false, true} {
			if name := only(tier, detector); name != "" {
				t.Errorf("tier %q, detector %t: -%s leaves tests out", tier, detector, name)
			}
		}
	}
	if name := only("change", true); name != "test.skip" {
		t.Errorf("with the detector: %q", name)
	}
	if name := only("change", false); name != "test.run" {
		t.Errorf("without the detector: %q", name)
	}
}

// TestFull: the variable alone decides whether a test of the full tier runs.
func TestFull(t *testing.T) {
	for tier, want := range map[string]bool{"": true, "quick": true, "change": true, "full": false} {
		t.Setenv(Variable, tier)
		skipped := false
		t.Run(tier, func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			Full(t)
		})
		if skipped != want {
			t.Errorf("tier %q: skipped is %t", tier, skipped)
		}
	}
}
