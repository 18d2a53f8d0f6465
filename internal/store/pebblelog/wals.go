package pebblelog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// walPosition is how many bytes of a write-ahead log are synced.
type walPosition struct{ number, synced uint64 }

// wals are the write-ahead logs that this process has made and not removed, and how
// far each is synced. It is safe for concurrent use.
type wals struct {
	mu     sync.Mutex
	synced map[uint64]*atomic.Uint64

	// begun is set by the first sync of each log.
	begun atomic.Bool
}

func (w *wals) add(number uint64) *atomic.Uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.synced == nil {
		w.synced = map[uint64]*atomic.Uint64{}
	}
	at := new(atomic.Uint64)
	w.synced[number] = at
	return at
}

func (w *wals) remove(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.synced, number)
}

// positions returns the logs in the order of their numbers.
func (w *wals) positions() []walPosition {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []walPosition
	for number, at := range maps.All(w.synced) {
		all = append(all, walPosition{number, at.Load()})
	}
	slices.SortFunc(all, func(a, b walPosition) int { return cmp.Compare(a.number, b.number) })
	return all
}

// newest returns the newest log with synced bytes, or a zero position.
func (w *wals) newest() (p walPosition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for number, at := range w.synced {
		if synced := at.Load(); synced > 0 && number >= p.number {
			p = walPosition{number, synced}
		}
	}
	return p
}

// walNumber returns the number of the write-ahead log with the name, or false if the name is
// another file's.
func walNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, ok && err == nil
}

// walName is the name of a write-ahead log, as Pebble makes it.
func walName(number uint64) string {
	return fmt.Sprintf("%06d.log", number)
}
