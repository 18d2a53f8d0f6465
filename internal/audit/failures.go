package audit

import (
	"log/slog"
	"sync"
	"time"
)

// Counters are the counters of an Auditor.
type Counters struct {
	// Events are the events that were given to the back ends.
	Events int64
	// Rejected are the requests that were refused because an event could not be stored.
	Rejected int64
	// Levels are the requests by the name of their level, Errors the lost events by the part
	// that lost them: log, webhook, buffered, truncate.
	Levels, Errors map[string]int64
}

// Counters returns the counters.
func (a *Auditor) Counters() Counters {
	c := Counters{Events: a.events.Load(), Rejected: a.rejected.Load(), Levels: map[string]int64{}, Errors: map[string]int64{}}
	for i := range a.levels {
		c.Levels[levelNames[i]] = a.levels[i].Load()
	}
	a.failures.mu.Lock()
	defer a.failures.mu.Unlock()
	for _, plugin := range [...]string{pluginLog, pluginWebhook, pluginBuffered, pluginTruncate} {
		c.Errors[plugin] = 0
		if f := a.failures.of[plugin]; f != nil {
			c.Errors[plugin] = f.events
		}
	}
	return c
}

// failureInterval is the time between two messages about one plugin. A full disk fails every
// request.
const failureInterval = 10 * time.Second

// failures counts lost events, and logs them now and then.
type failures struct {
	log *slog.Logger

	mu sync.Mutex
	of map[string]*failure // by plugin; guarded by mu
}

type failure struct {
	events, logged int64
	at             time.Time // of the last message
}

func newFailures(log *slog.Logger) *failures {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &failures{log: log, of: map[string]*failure{}}
}

func (f *failures) add(plugin string, events int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.of[plugin]
	if one == nil {
		one = &failure{}
		f.of[plugin] = one
	}
	one.events += int64(events)
	if !one.at.IsZero() && time.Since(one.at) < failureInterval {
		return
	}
	f.log.Error("audit events are lost", "plugin", plugin, "events", one.events-one.logged, "err", err)
	one.logged, one.at = one.events, time.Now()
}
