package kube_test

import (
	"os"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest/internal/tier"
)

func TestMain(m *testing.M) {
	tier.UseProgram()
	os.Exit(m.Run())
}
