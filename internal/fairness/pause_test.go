package fairness_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// TestRetryAfter: the pause of a level grows while many of its requests are refused, and shrinks with the first refusals
// after that. Other levels have their own.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fairness.New(fairness.Config{Bytes: 1 << 20, Watches: 10})
		g.Configure([]fairness.Level{{Name: "l", Shares: 1}, {Name: "other", Shares: 1}}, 2)
		defer mustAcquire(t, g, fairness.Request{}).Release()
		refuse := func(times int) {
			for range times {
				if _, err := g.Acquire(context.Background(), fairness.Request{Level: "l"}); err != fairness.ErrConcurrencyLimit {
					t.Fatal(err)
				}
			}
		}
		var got []string
		show := func() { got = append(got, fmt.Sprint(g.RetryAfter("l"))) }
		show()
		for range 80 { // a refusal for each tenth of a second
			refuse(10)
			show()
			time.Sleep(time.Second)
		}
		// It doubles after its own length, when it counts the refusals of the seconds before.
		if want := "1 1 2 2 4 4 4 4 8 8 8 8 8 8 8 8 16"; strings.Join(got[:17], " ") != want || got[80] != "32" {
			t.Errorf("got %s, want %s and 32 in the end", strings.Join(got, " "), want)
		}
		got = nil
		time.Sleep(time.Minute)
		for range 3 { // one in two seconds is few
			refuse(1)
			show()
			time.Sleep(2 * time.Second)
		}
		if s := strings.Join(got, " "); s != "31 30 29" {
			t.Errorf("after a minute: %s", s)
		}
		if n := g.RetryAfter("other"); n != 1 {
			t.Errorf("another level: %d", n)
		}
	})
}
