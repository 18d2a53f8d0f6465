package kills

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is the common history of the watchers of a round.
type history struct {
	start  map[string]version // the state before it
	from   int64              // the revision of start
	upTo   int64
	events []event // in order, each with the time when it was seen first
	byName map[string][]event
	at     map[int64]int // the index of the event of a revision
}

// newHistory merges the events of the watchers up to a revision. It returns their contradictions.
func newHistory(start map[string]version, from, upTo int64, watchers []*watcher) (*history, []string) {
	h := &history{start: start, from: from, upTo: upTo, at: map[int64]int{}, byName: map[string][]event{}}
	all := map[int64]event{}
	var wrong []string
	for _, w := range watchers {
		for _, e := range w.events {
			if e.revision > upTo {
				continue
			}
			known, ok := all[e.revision]
			same := known
			same.seen = e.seen
			if ok && same != e {
				wrong = append(wrong, fmt.Sprintf("%s saw %+v, and another watcher %+v", w.name, e, known))
			}
			if !ok || e.seen < known.seen {
				all[e.revision] = e
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(all)) {
		e := all[r]
		h.at[r] = len(h.events)
		h.events = append(h.events, e)
		h.byName[e.key] = append(h.byName[e.key], e)
	}
	for _, w := range watchers {
		wrong = append(wrong, h.missed(w)...)
	}
	return h, append(wrong, h.types()...)
}

// missed returns the events that a watcher has missed, and the wrong lists.
func (h *history) missed(w *watcher) (wrong []string) {
	seen := map[int64]bool{}
	for _, e := range w.events {
		seen[e.revision] = true
	}
	for i, s := range w.spans {
		for _, e := range h.events {
			if e.revision > s.after && e.revision <= s.upTo && !seen[e.revision] {
				wrong = append(wrong, fmt.Sprintf("%s read from %d to %d without %+v", w.name, s.after, s.upTo, e))
			}
		}
		if i > 0 && s.after <= h.upTo && !maps.Equal(s.start, h.stateAt(s.after)) {
			wrong = append(wrong, fmt.Sprintf("%s listed %v at %d, want %v", w.name, s.start, s.after, h.stateAt(s.after)))
		}
	}
	return wrong
}

// types checks that each event is one that its object can have next.
func (h *history) types() (wrong []string) {
	state := maps.Clone(h.start)
	for _, e := range h.events {
		before, there := state[e.key]
		ok := there == (e.what != "ADDED") && (e.what != "DELETED" || before.value == e.value)
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%+v follows %+v", e, before))
		}
		h.apply(state, e)
	}
	return wrong
}

func (h *history) apply(state map[string]version, e event) {
	if e.what == "DELETED" {
		delete(state, e.key)
	} else {
		state[e.key] = version{e.revision, e.value}
	}
}

// stateAt returns the objects at a revision.
func (h *history) stateAt(r int64) map[string]version {
	state := map[string]version{}
	for i := range objects {
		name := fmt.Sprint(namePrefix, i)
		events := h.byName[name]
		n := sort.Search(len(events), func(i int) bool { return events[i].revision > r })
		if n == 0 {
			if v, ok := h.start[name]; ok {
				state[name] = v
			}
		} else {
			h.apply(state, events[n-1])
		}
	}
	return state
}

// has reports whether an object had a version.
func (h *history) has(key string, v version) bool {
	i, ok := h.at[v.revision]
	if !ok {
		return h.start[key] == v
	}
	e := h.events[i]
	return e.key == key && e.value == v.value && e.what != "DELETED"
}

// check compares the operations with the history. It returns the errors, and the writes of unknown
// outcome that have not been seen, which may still be made. Older has those of previous rounds.
func (h *history) check(ops, older []*op) (wrong []string, open []*op) {
	writes := map[string]*op{}
	for _, o := range slices.Concat(older, ops) {
		if o.kind != get && o.value != "" {
			writes[o.value] = o
		}
	}
	found := map[string]int64{}
	for _, e := range h.events {
		if e.what == "DELETED" {
			continue
		}
		o := writes[e.value]
		switch {
		case o == nil:
			wrong = append(wrong, fmt.Sprintf("%+v was written by no client", e))
		case found[e.value] != 0:
			wrong = append(wrong, fmt.Sprintf("%+v was written at %d too", e, found[e.value]))
		case o.outcome != made && o.outcome != unknown:
			wrong = append(wrong, fmt.Sprintf("%+v was made by %v", e, o))
		}
		found[e.value] = e.revision
	}
	var resolved []*op
	for _, o := range slices.Concat(older, ops) {
		switch {
		case o.outcome == refused, o.outcome == unknown && (o.kind == get || o.kind == list):
			continue
		case o.outcome == unknown && o.kind != remove && found[o.value] == 0:
			open = append(open, o)
			continue
		case o.outcome == unknown && o.kind == remove:
			open = append(open, o)
		case o.outcome == unknown:
			o = h.resolve(o, found[o.value])
		}
		resolved = append(resolved, o)
		wrong = append(wrong, h.checkVersion(o)...)
	}
	wrong = append(wrong, checkTime(resolved)...)
	return append(wrong, h.linearizable(resolved)...), open
}

// resolve returns a write of unknown outcome as one that was made. It had been made when it was seen.
func (h *history) resolve(o *op, at int64) *op {
	c := *o
	c.outcome, c.version = made, at
	c.ret = max(h.events[h.at[at]].seen, o.call)
	return &c
}

// checkVersion checks that the written or read version is in the history.
func (h *history) checkVersion(o *op) (wrong []string) {
	switch {
	case o.outcome != made || o.kind == remove || o.version > h.upTo:
	case o.kind == list:
		if want := h.stateAt(o.version); !maps.Equal(want, o.items) {
			wrong = append(wrong, fmt.Sprintf("%v: got %v, want %v", o, o.items, want))
		}
	case !h.has(o.key, version{o.version, o.value}):
		wrong = append(wrong, fmt.Sprintf("%v: the history does not have it", o))
	}
	return wrong
}

// checkTime checks that a list is not older than anything that got a response before it.
func checkTime(ops []*op) (wrong []string) {
	ended := slices.Clone(ops)
	slices.SortFunc(ended, func(a, b *op) int { return int(a.ret - b.ret) })
	lists := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.kind != list || o.outcome != made })
	slices.SortFunc(lists, func(a, b *op) int { return int(a.call - b.call) })
	newest, next := new(op), 0
	for _, o := range lists {
		for ; next < len(ended) && ended[next].ret < o.call; next++ {
			if ended[next].version > newest.version {
				newest = ended[next]
			}
		}
		if o.version < newest.version {
			wrong = append(wrong, fmt.Sprintf("%v goes back behind %v", o, newest))
		}
	}
	return wrong
}

// register is the state of one object in the model.
type register struct {
	there   bool
	version version
	newest  int64 // no later version is below
}

// porcupineLimit limits the search for one object.
const porcupineLimit = time.Minute

// linearizable checks the history of each object with porcupine.
func (h *history) linearizable(ops []*op) (wrong []string) {
	for i := range objects {
		key := fmt.Sprint(namePrefix, i)
		first, there := h.start[key]
		model := porcupine.Model{
			Init: func() any { return register{there, first, h.from} },
			Step: func(state, input, _ any) (bool, any) { return step(state.(register), input.(*op)) },
		}
		var all []porcupine.Operation
		for _, o := range ops {
			if o.kind == list {
				o = part(o, key)
			}
			if o.key != key {
				continue
			}
			end := o.ret
			if o.outcome == unknown {
				end = math.MaxInt64
			}
			all = append(all, porcupine.Operation{Input: o, Call: o.call, Return: end})
		}
		if result := porcupine.CheckOperationsTimeout(model, all, porcupineLimit); result != porcupine.Ok {
			wrong = append(wrong, fmt.Sprintf("porcupine: the %d operations on %s: %s%s", len(all), key, result, stuck(model, all)))
		}
	}
	return wrong
}

// stuck describes where the longest order that porcupine found ends.
func stuck(model porcupine.Model, all []porcupine.Operation) (text string) {
	_, info := porcupine.CheckOperationsVerbose(model, all, porcupineLimit)
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	ordered := map[any]bool{}
	for _, o := range longest {
		ordered[o.Input] = true
	}
	for _, o := range longest[max(0, len(longest)-10):] {
		text += fmt.Sprintf("\n    %v", o.Input)
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(o porcupine.Operation) bool { return ordered[o.Input] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, o := range rest[:min(10, len(rest))] {
		text += fmt.Sprintf("\n    not in the order: %v", o.Input)
	}
	return text
}

// part returns the entry of a list for one object, as a get.
func part(o *op, key string) *op {
	c := &op{server: o.server, kind: get, key: key, call: o.call, ret: o.ret, outcome: absent}
	if v, ok := o.items[key]; ok {
		c.outcome, c.version, c.value = made, v.revision, v.value
	}
	return c
}

// step is the model: it reports whether an object can have this response, and returns its next state.
func step(s register, o *op) (bool, register) {
	next := register{true, version{o.version, o.value}, o.version}
	switch o.outcome {
	case absent:
		return !s.there, s
	case exists:
		return s.there, s
	case conflict:
		return s.there && s.version.revision != o.condition, s
	}
	match := s.there && (o.condition == 0 || s.version.revision == o.condition)
	switch o.kind {
	case create:
		return !s.there && o.version > s.newest, next
	case update, patch:
		return match && o.version > s.newest, next
	case remove:
		if !match {
			return o.outcome == unknown, s
		}
		return true, register{newest: s.newest}
	}
	return s.there && s.version == version{o.version, o.value}, s
}
