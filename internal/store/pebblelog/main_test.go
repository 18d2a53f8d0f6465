package pebblelog_test

import (
	"os"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

func TestMain(m *testing.M) {
	os.Exit(tier.Race(m,
		"TestAcceptDataLoss", "TestAcceptedLossIsKept", "TestCrash", "TestDamage", "TestFlipAfterCleanStop",
		"TestFlipAfterPowerCut", "TestForeignWrite", "TestFullDisk", "TestModel", "TestSmallDisk", "TestWriteError",
	))
}
