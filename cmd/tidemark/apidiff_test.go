package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestAPIDiff checks both forms of the output.
func TestAPIDiff(t *testing.T) {
	code, text, stderr := command("api-diff", "1.36", "1.37")
	if code != exitOK || !strings.Contains(text, "+  gate   HPAGeneration ") || !strings.Contains(text, "-  gate   SidecarContainers ") {
		t.Errorf("%d %s\n%s", code, stderr, text)
	}
	code, text, stderr = command("api-diff", "1.37", "1.36", "-o", "json")
	var changes []apiChange
	if err := json.Unmarshal([]byte(text), &changes); err != nil || code != exitOK {
		t.Fatalf("%d %v %s", code, err, stderr)
	}
	want := apiChange{"removed", "kind", "storagemigration.k8s.io/v1 StorageVersionMigration", ""}
	for _, c := range changes {
		if c == want {
			return
		}
	}
	t.Errorf("no %+v in\n%s", want, text)
}
