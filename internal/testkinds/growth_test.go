package testkinds

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	runs := 0
	run := func(n int) Steps {
		runs++
		k := time.Duration(n) * time.Microsecond
		return Steps{"linear": k * 1000, "quadratic": k * time.Duration(n), "quick": time.Duration(n * n), fmt.Sprint("of ", n): k * 1000}
	}
	slow := Growth(100, time.Millisecond, run)
	if want := "quadratic: 100 entries take 10ms, 400 160ms"; strings.TrimSpace(slow) != want {
		t.Errorf("got %q, want %q", slow, want)
	}
	if runs != 2*growthAttempts {
		t.Errorf("%d runs", runs)
	}
	runs = 0
	if slow := Growth(100, 0, func(n int) Steps {
		if runs++; runs > 1 { // the machine slows down after the first measurement
			n *= 10
		}
		return Steps{"linear": time.Duration(n)}
	}); slow != "" {
		t.Errorf("a machine that slows down counts: %s", slow)
	}
}
