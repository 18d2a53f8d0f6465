package integration_test

import (
	"os"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

func TestMain(m *testing.M) {
	os.Exit(tier.Race(m,
		"TestConversionOfLists", "TestDocumentsNeedRights", "TestDocumentsOfDefinitions", "TestEncryptedOnDisk",
		"TestImpersonationRandom", "TestLongWebhookAnswers", "TestMutatingPolicies", "TestNamespacePlugins", "TestOddWrites", "TestProfiles",
		"TestStorageQuota", "TestStoredExpressions", "TestTypeChecking", "TestWebhookAddress",
		"TestWebhookAnswerIsNotShown", "TestWebhooks", "TestWriteLimits",
	))
}
