package integration_test

import (
	"os"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

func TestMain(m *testing.M) {
	os.Exit(tier.Race(m,
		"TestConversionOfLists", "TestDocumentsNeedRights", "TestDocumentsOfDefinitions", "TestEncryptedOnDisk",
		"TestImpersonationRandom", "TestLongWebhookResponses", "TestMutatingPolicies", "TestNamespacePlugins", "TestOddWrites", "TestProfiles",
		"TestStorageQuota", "TestStoredExpressions", "TestTypeChecking", "TestWebhookAddress",
		"TestWebhookResponseIsNotShown", "TestWebhooks", "TestWriteLimits",
	))
}
