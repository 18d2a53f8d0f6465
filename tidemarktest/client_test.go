package tidemarktest

import (
	"context"
	"io"
	"strings"
	"testing"
)

// oldHost is a program that does not know a field of a request.
type oldHost struct{}

func (oldHost) Control(context.Context, string, string, []byte) (int, io.ReadCloser, error) {
	return 400, io.NopCloser(strings.NewReader(`{"message":"unknown field \"manifests[0].webhooksOnly\""}`)), nil
}

// TestOldProgram: the error of a program that does not know a field says that its version differs.
func TestOldProgram(t *testing.T) {
	_, err := control{oldHost{}}.open(t.Context(), "POST", "worlds/w/apply", nil)
	if err == nil || !strings.Contains(err.Error(), "of different versions (does TIDEMARK_BINARY name an old one?)") {
		t.Errorf("the error is %v", err)
	}
}
