package httpapi_test

import (
	"os"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

func TestMain(m *testing.M) {
	os.Exit(tier.Race(m,
		"TestAllocations", "TestCacheRuns", "TestErrorsAreSmall", "TestFragments", "TestFragmentsCompressWell",
		"TestLargeResponses", "TestListForms", "TestManyForms", "TestMetricsForget", "TestMetricsOfKindsThatGo",
	))
}
