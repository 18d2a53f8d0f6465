package groupcommit_test

import (
	"os"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

func TestMain(m *testing.M) { os.Exit(tier.Race(m)) }
