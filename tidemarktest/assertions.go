package tidemarktest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// hotLoopWrites is how often an actor may write one object without a reason.
	hotLoopWrites = 10
	// hotLoopTime is the time in which these writes happen. Slower ones are heartbeats.
	hotLoopTime = time.Minute
	// hotLoopTurns is how often an actor may write the status of an object until its next such writes are no reason to
	// write other objects: objects that are written in turn are not reasons for each other.
	hotLoopTurns = 3
	// convergeReturns is how often an object may return to a content that it had before.
	convergeReturns = 1
	// maxReported is how many changes a message shows.
	maxReported = 12
)

// Never fails the test if one of the changes matches. If no change of the Env is by the actor that is selected, the test log
// says so: the name may be wrong. So it does for the other assertions that pass without changes.
func (c Changes) Never(m Match) {
	c.t.Helper()
	selected := c.Match(m)
	selected.logAbsent()
	if bad := selected.list; len(bad) > 0 {
		c.fail(bad, "%s must not happen, but there %s", m, plural(len(bad), "match"))
	}
}

// Eventually fails the test if none of the changes matches. It does not wait: call Settle before
// Env.Changes.
func (c Changes) Eventually(m Match) {
	c.t.Helper()
	if selected := c.Match(m); len(selected.list) == 0 {
		c.absent = selected.absent
		c.fail(c.list, "nothing matches: %s", m)
	}
}

// Before fails the test unless the first change that matches first comes before the first one that
// matches second. Both must exist.
func (c Changes) Before(first, second Match) {
	c.t.Helper()
	before, after := c.Match(first), c.Match(second)
	a, b := before.list, after.list
	for _, name := range slices.Concat(before.absent, after.absent) {
		if !slices.Contains(c.absent, name) {
			c.absent = append(slices.Clone(c.absent), name)
		}
	}
	switch {
	case len(a) == 0:
		c.fail(b, "nothing matches: %s. It must come before: %s", first, second)
	case len(b) == 0:
		c.fail(a, "nothing matches: %s. It must come after: %s", second, first)
	case b[0].Revision == a[0].Revision:
		c.fail(a[:1], "the first change that matches %s is also the first one that matches %s, and must come before it", first, second)
	case b[0].Revision < a[0].Revision:
		c.fail([]Change{b[0], a[0]}, "%s comes after: %s", first, second)
	}
}

// Converges fails the test if an object returns twice to contents that it had before, as it does when
// two actors overwrite each other. Resource versions, points in time and field managers do not count.
// Going back once is allowed. Events and Leases do not count.
func (c Changes) Converges() {
	c.t.Helper()
	c.logAbsent()
	for _, bad := range returns(c.list) {
		c.fail(bad, "%s %s does not converge: it has returned %d times to a former content", bad[0].Collection, bad[0].Key, convergeReturns+1)
	}
}

// NoWritesAfterSettled fails the test if there are changes after the last Settle, which must have
// been called. Between the two, do something that must not lead to writes, such as a restart of the
// controller.
func (c Changes) NoWritesAfterSettled() {
	c.t.Helper()
	c.logAbsent()
	settled := c.env.root().settled.Load()
	if settled == 0 {
		c.t.Fatalf("tidemarktest: NoWritesAfterSettled needs a call of Settle before")
		return
	}
	late := c.Where(func(change Change) bool { return change.Revision > settled && !transient(change.Collection) })
	if len(late.list) > 0 {
		c.fail(late.list, "there %s after the cluster has settled at revision %d", plural(len(late.list), "write"), settled)
	}
}

// NoHotLoop fails the test if an actor writes an object ten times within a minute without a reason. A reason is that
// the actor changes the spec of the object, that another actor changes the object, or that any
// actor changes another object, in each case to a content that the object has not had before. Points in time
// are no content, so heartbeats of two actors are not reasons for each other. Objects whose status one actor writes in
// turn are not either. Events and Leases do not count. All changes of the Env count as reasons, whatever is selected.
func (c Changes) NoHotLoop() {
	c.t.Helper()
	c.logAbsent()
	for _, bad := range hotLoops(c.all) {
		if slices.ContainsFunc(c.list, func(change Change) bool { return change.Revision == bad[0].Revision }) {
			took := bad[len(bad)-1].Time.Sub(bad[0].Time)
			c.fail(bad, "%s writes %s %s again and again: %d times in %v without a change of its spec or of other objects", bad[0].Actor, bad[0].Collection, bad[0].Key, len(bad), took.Round(time.Millisecond))
		}
	}
}

// maxActors limits the actors in a message.
const maxActors = 10

// logAbsent logs the actors that are selected, and have changed nothing. An assertion that nothing happens proves nothing if
// their names are wrong.
func (c Changes) logAbsent() {
	c.t.Helper()
	for _, name := range c.absent {
		c.t.Logf("tidemarktest: Changes%s passes because no change is by %q. %s", c.calls, name, c.actors())
	}
}

// actors names the actors of all changes.
func (c Changes) actors() string {
	var names []string
	for i := range c.all {
		if name := c.all[i].Actor.describe(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "There are no changes"
	}
	more := ""
	if n := len(names) - maxActors; n > 0 {
		names, more = names[:maxActors], fmt.Sprintf(", and %d more", n)
	}
	return "The actors are " + strings.Join(names, ", ") + more
}

// contents numbers the contents of objects: equal contents of one object have the same number.
type contents map[string]int

// seen returns the number of a content, and whether it is new.
func (s contents) seen(c *Change, part func(map[string]any) map[string]any) (int, bool) {
	text := "(deleted)"
	if o, err := decodeObject(c.After); err != nil {
		text = string(c.After)
	} else if o != nil {
		text = yamlText(part(stable(o, func(s string) string { return s })))
	}
	id := c.Collection + " " + c.Key + "\n" + text
	n, ok := s[id]
	if !ok {
		n = len(s)
		s[id] = n
	}
	return n, !ok
}

func whole(o map[string]any) map[string]any { return o }

// desired is an object without its status and metadata.
func desired(o map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range o {
		if name != "status" && name != "metadata" {
			out[name] = v
		}
	}
	return out
}

// returns finds the objects that return to former contents too often. It returns the changes of each,
// beginning with the one that made the content first.
func returns(changes []Change) [][]Change {
	known := contents{}
	type track struct {
		list    []Change
		last    int
		returns int
	}
	tracks := map[string]*track{}
	var found [][]Change
	for _, c := range changes {
		if transient(c.Collection) {
			continue
		}
		id := c.Collection + " " + c.Key
		t := tracks[id]
		if t == nil {
			t = &track{last: -1}
			tracks[id] = t
			if c.Before != nil {
				former := Change{Collection: c.Collection, Key: c.Key, After: c.Before}
				t.last, _ = known.seen(&former, whole)
			}
		}
		n, isNew := known.seen(&c, whole)
		if n == t.last {
			continue
		}
		t.last = n
		t.list = append(t.list, c)
		if isNew {
			continue
		}
		if t.returns++; t.returns == convergeReturns+1 {
			found = append(found, slices.Clone(t.list))
		}
	}
	return found
}

// hotLoops finds rows of writes of one object by one actor without a reason. It returns the changes of
// each row.
func hotLoops(changes []Change) [][]Change {
	type writer struct{ id, actor string }
	type row struct {
		list    []Change
		reasons int // of the writer, when the row began
		turns   int // writes since another actor, or a new spec, gave a reason
		strong  int // these reasons, when turns began
		weak    int // reasons that the writes of this row gave to the actor's other objects
	}
	full, spec := contents{}, contents{}
	rows := map[writer]*row{}
	strong := 0                                        // new contents so far
	status, weak := map[string]int{}, map[string]int{} // by actor: new contents without a new spec, and those that are reasons
	var found [][]Change
	end := func(r *row) {
		if hot := fastest(r.list); len(hot) > 0 {
			found = append(found, hot)
		}
		r.list = nil
	}
	for _, c := range changes {
		if transient(c.Collection) {
			continue
		}
		me := writer{c.Collection + " " + c.Key, actorID(c.Actor)}
		r := rows[me]
		if r == nil {
			r = new(row)
			rows[me] = r
		}
		_, newContent := full.seen(&c, whole)
		_, newSpec := spec.seen(&c, desired)
		statusAlone := newContent && !newSpec
		if newContent {
			strong++
		}
		if statusAlone {
			status[me.actor]++
		}
		if now := strong - status[me.actor]; now != r.strong {
			r.strong, r.turns = now, 0
		}
		if statusAlone && r.turns < hotLoopTurns {
			weak[me.actor]++
			r.weak++
		}
		if now := r.strong + weak[me.actor] - r.weak; now != r.reasons {
			end(r)
			r.reasons = now
		}
		if c.Before != nil && c.After != nil {
			r.list = append(r.list, c)
			r.turns++
		}
	}
	for _, r := range rows {
		end(r)
	}
	slices.SortFunc(found, func(a, b []Change) int { return int(a[0].Revision) - int(b[0].Revision) })
	return found
}

// fastest returns the longest part of some writes in which each hotLoopWrites of them happen within hotLoopTime; nil: there
// is none.
func fastest(list []Change) (longest []Change) {
	begin := 0
	for i := range list {
		if i-begin >= hotLoopWrites-1 && list[i].Time.Sub(list[i-hotLoopWrites+1].Time) > hotLoopTime {
			begin = i - hotLoopWrites + 2
		}
		if part := list[begin : i+1]; len(part) >= hotLoopWrites && len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

func actorID(a *Actor) string {
	if a == nil {
		return ""
	}
	return strings.Join([]string{a.User, a.UserAgent, a.FieldManager, a.Loop}, "\n")
}

// fail reports changes, the revision of the last one, and how to see the state then.
func (c Changes) fail(changes []Change, format string, args ...any) {
	c.t.Helper()
	revision := uint64(0)
	if len(changes) > 0 {
		revision = changes[len(changes)-1].Revision
	}
	selected := ""
	if c.calls != "" {
		selected = "Changes" + c.calls + ": "
	}
	text := fmt.Sprintf(format, args...)
	for _, name := range c.absent {
		text += fmt.Sprintf("\n  no change is by %q. %s", name, c.actors())
	}
	c.t.Errorf("tidemarktest: %s%s\n%s%s", selected, text, describe(changes), c.env.keep(c.t, revision))
}

// plural returns "is 1 change", "are 2 changes".
func plural(n int, what string) string {
	if n == 1 {
		return "is " + count(n, what)
	}
	return "are " + count(n, what)
}

// count returns "1 change", "2 changes".
func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shownAlike is how many changes a message shows of those that follow each other and change the same fields.
const shownAlike = 2

// describe formats changes with the fields that they changed.
func describe(changes []Change) string {
	var b strings.Builder
	if skipped := len(changes) - maxReported; skipped > 0 {
		fmt.Fprintf(&b, "  ... %d changes before\n", skipped)
		changes = changes[skipped:]
	}
	for len(changes) > 0 {
		n := alike(changes)
		for i := range changes[:min(n, shownAlike)] {
			c := &changes[i]
			fmt.Fprintf(&b, "  %s\n", c)
			for _, line := range fieldDiffs(c) {
				b.WriteString("      " + line + "\n")
			}
		}
		if more := n - shownAlike; more > 0 {
			fmt.Fprintf(&b, "  ... %s of the same fields, up to revision %d\n", count(more, "change"), changes[n-1].Revision)
		}
		changes = changes[n:]
	}
	return b.String()
}

// alike returns how many of the first changes are by one actor, of one object, and of the same fields.
func alike(changes []Change) int {
	key := func(c *Change) string {
		fields := fieldDiffs(c)
		for i, line := range fields {
			fields[i], _, _ = strings.Cut(line, ": ")
		}
		return strings.Join(append(fields, c.what(), actorID(c.Actor)), "\n")
	}
	n := 1
	for n < len(changes) && changes[0].Before != nil && changes[0].After != nil && key(&changes[n]) == key(&changes[0]) {
		n++
	}
	return n
}

// keep returns the command that opens the state at a revision, or the one that makes a dump with it. If TIDEMARK_DUMP
// names a directory, it writes the state there to state-REVISION.yaml; the rest of the dump follows when the test ends.
func (e *Env) keep(t TB, revision uint64) string {
	if revision == 0 {
		return ""
	}
	root := os.Getenv("TIDEMARK_DUMP")
	if root == "" {
		return fmt.Sprintf("  to keep the state at this revision: TIDEMARK_DUMP=DIR go test %s", testFlag(t.Name()))
	}
	dir := e.dumpDir(t, root)
	path := filepath.Join(dir, fmt.Sprintf("state-%d.yaml", revision))
	err := os.MkdirAll(dir, 0o777)
	if err == nil {
		err = e.save(fmt.Sprintf("state?revision=%d", revision), path)
	}
	if err != nil {
		return fmt.Sprintf("  the state at revision %d: %v", revision, err)
	}
	return fmt.Sprintf("  the state at revision %d is in %s; to open it: %s", revision, path, e.session.openCommand(dir, revision))
}
