package sharedmem_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestSuite runs the suite of stores on a Shared with several sets of faults.
func TestSuite(t *testing.T) {
	const delay = 5 * time.Millisecond
	for _, c := range []struct {
		name   string
		faults sharedmem.Faults
	}{
		{"none", sharedmem.Faults{}},
		{"delays", sharedmem.Faults{Delay: delay}},
		{"foreign", sharedmem.Faults{Delay: delay, Foreign: 0.3}},
		{"lost", sharedmem.Faults{Delay: delay, Lost: 0.2, Unavailable: 0.1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			storetest.RunShared(t, func(t *testing.T) storetest.SharedMedium { return medium(t, c.faults) }, synctest.Test)
		})
	}
}

// TestUnknown leaves the outcome of many writes unknown.
func TestUnknown(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				storetest.RunSharedModel(t, medium(t, sharedmem.Faults{Delay: 5 * time.Millisecond, Unknown: 0.1, Lost: 0.1, Unavailable: 0.1, Foreign: 0.1}))
			})
		})
	}
}

func medium(t *testing.T, faults sharedmem.Faults) storetest.SharedMedium {
	log := sharedmem.New(testrand.New(t), 95, faults) // the digits of revisions grow during the tests
	return storetest.SharedMedium{
		Open:   func(testing.TB) store.Shared { return log.Open() },
		Expire: log.Expire,
		Settle: log.Settle,
	}
}
