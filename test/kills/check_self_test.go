package kills

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestCheck: the checks find each violation that is planted into a right history.
func TestCheck(t *testing.T) {
	tier.Full(t)
	const key = namePrefix + "0"
	for _, row := range []struct {
		name  string
		plant func(events *[]event, ops *[]*op, w *watcher)
		want  string // in some message; empty: nothing is wrong
	}{
		{"right", func(*[]event, *[]*op, *watcher) {}, ""},
		{"lost write", func(_ *[]event, ops *[]*op, _ *watcher) {
			*ops = append(*ops, &op{kind: patch, key: key, value: "lost", outcome: made, version: 16, call: 60, ret: 61})
		}, "the history does not have it"},
		{"refused and made", func(_ *[]event, ops *[]*op, _ *watcher) { (*ops)[1].outcome = refused }, "was made by"},
		{"made by none", func(_ *[]event, ops *[]*op, _ *watcher) { *ops = (*ops)[1:] }, "written by no client"},
		{"made twice", func(events *[]event, _ *[]*op, _ *watcher) {
			*events = append(*events, event{"MODIFIED", 16, key, "c", 62})
		}, "was written at 14 too"},
		{"old read", func(_ *[]event, ops *[]*op, _ *watcher) {
			*ops = append(*ops, &op{kind: get, key: key, value: "a", outcome: made, version: 11, call: 60, ret: 61})
		}, "porcupine"},
		{"stale 404", func(_ *[]event, ops *[]*op, _ *watcher) {
			*ops = append(*ops, &op{kind: get, key: key, outcome: absent, call: 60, ret: 61})
		}, "porcupine"},
		{"stale conflict", func(_ *[]event, ops *[]*op, _ *watcher) {
			*ops = append(*ops, &op{kind: update, key: key, value: "x", condition: 14, outcome: conflict, call: 60, ret: 61})
		}, "porcupine"},
		{"old list", func(_ *[]event, ops *[]*op, _ *watcher) {
			*ops = append(*ops, &op{kind: list, outcome: made, version: 12, items: map[string]version{key: {12, "b"}}, call: 60, ret: 61})
		}, "goes back"},
		{"wrong list", func(_ *[]event, ops *[]*op, _ *watcher) {
			*ops = append(*ops, &op{kind: list, outcome: made, version: 15, items: map[string]version{}, call: 60, ret: 61})
		}, "want map"},
		{"unknown, and made late", func(_ *[]event, ops *[]*op, _ *watcher) { (*ops)[1].outcome, (*ops)[1].version = unknown, 0 }, ""},
		{"unknown, and never made", func(_ *[]event, ops *[]*op, _ *watcher) {
			*ops = append(*ops, &op{kind: patch, key: key, value: "never", outcome: unknown, call: 1, ret: 2})
		}, ""},
		{"skipped event", func(_ *[]event, _ *[]*op, w *watcher) { w.events = w.events[1:] }, "without"},
		{"other event", func(_ *[]event, _ *[]*op, w *watcher) { w.events[1].value = "z" }, "and another watcher"},
		{"deleted twice", func(events *[]event, _ *[]*op, _ *watcher) {
			*events = append(*events, event{"DELETED", 16, key, "c", 62}, event{"DELETED", 17, key, "c", 63})
		}, "follows"},
	} {
		t.Run(row.name, func(t *testing.T) {
			events := []event{{"ADDED", 11, key, "a", 15}, {"MODIFIED", 12, key, "b", 25}, {"DELETED", 13, key, "b", 35}, {"ADDED", 14, key, "c", 45}}
			ops := []*op{
				{kind: create, key: key, value: "a", outcome: made, version: 11, call: 10, ret: 20},
				{kind: update, key: key, value: "b", condition: 11, outcome: made, version: 12, call: 21, ret: 30},
				{kind: remove, key: key, condition: 12, outcome: made, call: 31, ret: 40},
				{kind: create, key: key, value: "c", outcome: made, version: 14, call: 41, ret: 50},
				{kind: get, key: key, value: "c", outcome: made, version: 14, call: 51, ret: 55},
			}
			second := &watcher{name: "second", spans: []span{{after: 10, upTo: 20}}, events: append([]event(nil), events...)}
			row.plant(&events, &ops, second)
			first := &watcher{name: "first", spans: []span{{after: 10, upTo: 20}}, events: events}
			if len(events) > 4 {
				second.events = events
			}
			h, wrong := newHistory(map[string]version{}, 10, 20, []*watcher{first, second})
			more, _ := h.check(ops, nil)
			text := strings.Join(append(wrong, more...), "\n")
			if row.want == "" && text != "" || !strings.Contains(text, row.want) {
				t.Errorf("got %q, want %q", text, row.want)
			}
		})
	}
}
