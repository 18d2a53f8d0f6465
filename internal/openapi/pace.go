package openapi

import (
	"context"
	"sync"
	"time"
)

// pace bounds the work to assemble pages, which is in proportion to all definitions, for changes of one of them: one
// page is assembled at a time, and the bytes of all pages have a rate. The documents wait for it, so a page is that of
// the newest catalog, and all requests for it share the work. It is safe for concurrent use.
type pace struct {
	// bytesPerSecond is about a quarter of the bytes that one processor assembles in a second.
	bytesPerSecond int64
	// burstBytes may be assembled without a pause. All pages of the built-in kinds have fewer.
	burstBytes int64
	// longest is the longest pause: a request has a minute.
	longest time.Duration

	turn chan struct{} // holds a value while a page is assembled

	mu   sync.Mutex
	done time.Time // when the bytes up to now are paid, at the rate
}

// conversionFactor is how much longer the conversion of a kind takes than the assembly of as many bytes.
const conversionFactor = 4

func newPace() *pace {
	return &pace{bytesPerSecond: 32 << 20, burstBytes: 128 << 20, longest: 15 * time.Second, turn: make(chan struct{}, 1)}
}

// begin waits until a page may be assembled, without a pause if it is made then. The caller must call end then, unless
// begin fails because the context has ended.
func (p *pace) begin(ctx context.Context, made func() bool) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if pause := p.pause(); pause > 0 && !made() {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			<-p.turn
			return ctx.Err()
		}
	}
	return nil
}

func (p *pace) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(p.longest, time.Until(p.done.Add(-p.seconds(p.burstBytes)))) // of a time long ago, it is the least Duration
}

// end ends what begin began. It pays for n bytes.
func (p *pace) end(n int64) {
	p.mu.Lock()
	if now := time.Now(); p.done.Before(now) {
		p.done = now
	}
	p.done = p.done.Add(p.seconds(n))
	if most := time.Now().Add(p.seconds(p.burstBytes) + p.longest); p.done.After(most) {
		p.done = most
	}
	p.mu.Unlock()
	<-p.turn
}

func (p *pace) seconds(n int64) time.Duration {
	return time.Duration(float64(n) / float64(p.bytesPerSecond) * float64(time.Second))
}
