package fairness

import "time"

// maxPause bounds a pause, in seconds.
const maxPause = 32

// pause is how many seconds a client should wait after a refusal: the Retry-After of a level. As in kube-apiserver, it
// is 1 at first. With the first refusal of a second it changes by the refusals of as many seconds before: it doubles if
// there were three for each second, at most once in its own length, and it is reduced by 1 if there was less than one for
// each second. The level's mu guards it.
type pause struct {
	seconds int64
	now     int64 // the second of the last refusal
	raised  int64 // when the pause was doubled
	refused [maxPause + 1]struct{ second, count int64 }
}

func newPause() pause { return pause{seconds: 1, now: -1, raised: -maxPause} }

// refuse counts a refusal at a time of the gate's clock.
func (p *pause) refuse(at time.Duration) {
	now := int64(at / time.Second)
	if now != p.now {
		p.adjust(now)
		p.now = now
	}
	slot := &p.refused[now%int64(len(p.refused))]
	if slot.second != now {
		slot.second, slot.count = now, 0
	}
	slot.count++
}

// adjust changes the pause by the refusals before a second.
func (p *pause) adjust(now int64) {
	recent := int64(0)
	for _, s := range p.refused {
		if s.second < now && now-s.second <= p.seconds {
			recent += s.count
		}
	}
	switch {
	case now-p.raised >= p.seconds && recent >= 3*p.seconds:
		p.seconds = min(2*p.seconds, maxPause)
		p.raised = now
	case recent < p.seconds && p.seconds > 1:
		p.seconds--
	}
}

// RetryAfter returns how many seconds a client should wait whose request was refused at a level.
func (g *Gate) RetryAfter(level string) int {
	l := g.level(level)
	if l == nil {
		return 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.pause.seconds)
}
