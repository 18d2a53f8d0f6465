package resourceversion_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/resourceversion"
)

type pod = resourceversion.Version[corev1.Pod]

func TestWatermark(t *testing.T) {
	var w resourceversion.Watermark[corev1.Pod]
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if got := w.Seen(); got != "" {
		t.Errorf("Seen() = %q before the first Advance", got)
	}
	if err := w.Wait(ctx, "1"); !errors.Is(err, stopped) {
		t.Errorf("Wait before the first Advance: %v, want the context's cause", err)
	}
	for _, step := range []struct{ advance, seen pod }{{"9", "9"}, {"10", "10"}, {"9", "10"}, {"10", "10"}} {
		if err := w.Advance(step.advance); err != nil || w.Seen() != step.seen {
			t.Errorf("after Advance(%s): at %q, %v, want %s", step.advance, w.Seen(), err, step.seen)
		}
	}
	for _, v := range []pod{"1", "9", "10"} {
		if err := w.Wait(ctx, v); err != nil {
			t.Errorf("Wait(%s) at 10: %v", v, err)
		}
	}
	if err := w.Wait(ctx, "11"); !errors.Is(err, stopped) {
		t.Errorf("Wait(11) at 10: %v, want the context's cause", err)
	}
}

func TestWatermarkRefusesOpaque(t *testing.T) {
	var w resourceversion.Watermark[corev1.Pod]
	if err := w.Advance("7"); err != nil {
		t.Fatal(err)
	}
	for _, v := range []pod{"", "0", "07", "opaque"} {
		for name, err := range map[string]error{"Advance": w.Advance(v), "Wait": w.Wait(t.Context(), v)} {
			if invalid, ok := errors.AsType[*resourceversion.InvalidError](err); !ok || invalid.Text != string(v) {
				t.Errorf("%s(%q) = %v, want an InvalidError", name, v, err)
			}
		}
	}
	if w.Seen() != "7" {
		t.Errorf("at %q, want 7", w.Seen())
	}
}

func TestOf(t *testing.T) {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "42"}}
	if got := resourceversion.Of(object); got != pod("42") {
		t.Errorf("Of = %s", got)
	}
}

// TestWaitWakes lets many wait for random versions, some of them with a deadline,
// and looks after each Advance that exactly those return that may.
func TestWaitWakes(t *testing.T) {
	r := testrand.New(t)
	synctest.Test(t, func(t *testing.T) {
		var w resourceversion.Watermark[corev1.Pod]
		waiting := map[int]int{} // version -> how many
		var mu sync.Mutex
		for range 500 {
			v := 1 + r.IntN(1000)
			waiting[v]++
			go func() {
				if err := w.Wait(t.Context(), pod(strconv.Itoa(v))); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				waiting[v]--
			}()
		}
		for range 100 { // these give up
			v := pod(strconv.Itoa(500 + r.IntN(10_000)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			go func() {
				defer cancel()
				if err := w.Wait(ctx, v); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Wait(%s): %v", v, err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		for at := 0; at < 1000; {
			at += 1 + r.IntN(50)
			if err := w.Advance(pod(strconv.Itoa(at))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			mu.Lock()
			for v, n := range waiting {
				if v <= at && n > 0 {
					t.Errorf("%d still wait for %d at %d", n, v, at)
				}
			}
			mu.Unlock()
		}
	})
}

// TestWatermarkConcurrent is for the race detector.
func TestWatermarkConcurrent(t *testing.T) {
	var w resourceversion.Watermark[corev1.Pod]
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 1000 {
				if err := w.Advance(pod(strconv.Itoa(i + 1))); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for range 100 {
				if err := w.Wait(t.Context(), pod(strconv.Itoa(1+rand.IntN(1000)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if w.Seen() != "1000" {
		t.Errorf("at %s", w.Seen())
	}
}
