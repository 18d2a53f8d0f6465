package httpapi

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

const (
	// overviewPath is the path of the page about the current work of the server.
	overviewPath = "/debug/tidemark"
	// overviewRows is how many rows a table of the page has.
	overviewRows = 20
	// slowestWindow is for how long at least the slowest requests are kept. The page shows those of two windows.
	slowestWindow = 10 * time.Minute
	// measured is how many objects of a collection are measured to estimate the size of all.
	measured = 100
)

// overview serves a text with the requests under way, the slowest requests of the last minutes, the largest collections,
// and the users with the most requests and watches.
func (q *request) overview() error {
	if q.r.Method != http.MethodGet {
		return errNoMethod()
	}
	now := time.Now()
	underWay, users := q.underWay(now)
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	section := func(title, head string) { fmt.Fprintf(w, "%s\n\n%s\n", title, head) }

	section(fmt.Sprintf("Requests that execute or wait for seats: %d", len(underWay)), "AGE\tUSER\tREQUEST\tLEVEL\tSTATE")
	for _, r := range underWay[:min(len(underWay), overviewRows)] {
		fmt.Fprintf(w, "%v\t%s\t%s\t%s\t%s\n", r.age.Round(time.Millisecond), cellText(r.user), r.what, cellText(r.level), r.state)
	}
	fmt.Fprintln(w)
	section(fmt.Sprintf("The slowest requests of the last %d to %d minutes, without watches", slowestWindow/time.Minute, 2*slowestWindow/time.Minute), "TOOK\tENDED\tUSER\tREQUEST\tCODE")
	for _, r := range q.h.slowest.all(now) {
		fmt.Fprintf(w, "%v\t%v ago\t%s\t%s\t%d\n", r.took.Round(100*time.Microsecond), now.Sub(r.ended).Round(time.Second), cellText(r.user), r.what, r.code)
	}
	fmt.Fprintln(w)
	section("The largest collections", "RESOURCE\tOBJECTS\tBYTES, ABOUT")
	for _, c := range q.collections() {
		fmt.Fprintf(w, "%s\t%d\t%d\n", c.name, c.objects, c.bytes)
	}
	fmt.Fprintln(w)
	section("The users with the most requests and watches", "USER\tEXECUTING\tWAITING\tWATCHES")
	for _, u := range users[:min(len(users), overviewRows)] {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", cellText(u.name), u.executing, u.waiting, u.watches)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return q.send(http.StatusOK, plainText, b.Bytes())
}

// underWayRow is a request that executes or waits.
type underWayRow struct {
	age                      time.Duration
	user, what, level, state string
}

// userRow is the running requests and watches of a user.
type userRow struct {
	name                        string
	executing, waiting, watches int
}

// underWay returns the requests that execute or wait, oldest first, and the users with the most requests and watches.
func (q *request) underWay(now time.Time) ([]underWayRow, []*userRow) {
	byName := map[string]*userRow{}
	of := func(name string) *userRow {
		if byName[name] == nil {
			byName[name] = &userRow{name: name}
		}
		return byName[name]
	}
	var all []underWayRow
	for _, v := range q.visited() {
		row := underWayRow{age: now.Sub(v.Arrived), user: v.User, what: asked(&v.asked), level: v.Level, state: "executes"}
		if v.Place >= 0 {
			row.state = "waits"
			of(v.User).waiting++
		} else {
			of(v.User).executing++
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b underWayRow) int { return cmp.Compare(b.age, a.age) })
	for name, n := range q.h.traffic.watchers() {
		of(name).watches += n
	}
	users := slices.SortedFunc(maps.Values(byName), func(a, b *userRow) int {
		return cmp.Or(cmp.Compare(b.executing+b.waiting+b.watches, a.executing+a.waiting+a.watches), cmp.Compare(a.name, b.name))
	})
	return all, users
}

// watchers returns how many watches each user has open.
func (t *traffic) watchers() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]int{}
	for q := range t.watches {
		all[q.info.User.Name]++
	}
	return all
}

// asked returns the verb and the object of a request, in a few words.
func asked(a *authz.Attributes) string {
	text := a.Verb + " " + a.Path
	if a.IsResource {
		text = a.Verb + " " + a.Resource
		if a.Group != "" {
			text += "." + a.Group
		}
		if a.Subresource != "" {
			text += "/" + a.Subresource
		}
		if a.Namespace != "" || a.Name != "" {
			text += " " + a.Namespace + "/" + a.Name
		}
	}
	return cellText(text)
}

// collectionRow is the size of a collection.
type collectionRow struct {
	name    string
	objects int
	bytes   int64
}

// collections returns the largest collections. Their sizes are estimated from some objects.
func (q *request) collections() (all []collectionRow) {
	state := q.h.c.Registry.Store.Any()
	for name := range state.Collections() {
		objects, n, bytes := state.Snapshot(name), int64(0), int64(0)
		for o := range objects.Scan("", "") {
			bytes += int64(o.Len())
			if n++; n == measured {
				break
			}
		}
		if n > 0 {
			all = append(all, collectionRow{name, objects.Len(), bytes * int64(objects.Len()) / n})
		}
	}
	slices.SortFunc(all, func(a, b collectionRow) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
	})
	return all[:min(len(all), overviewRows)]
}

// servedRow is a request that has ended.
type servedRow struct {
	took       time.Duration
	ended      time.Time
	user, what string
	code       int
}

// slowest has the slowest requests of the window that runs and of the one before. The zero value is ready.
type slowest struct {
	// A request counts if it took longer than floor, or ends after the window.
	floor, windowEnds atomic.Int64 // in nanoseconds; the end in those since 1970

	mu              sync.Mutex
	current, before []servedRow // slowest first; guarded by mu
}

// note adds a request that ends, if it is one of the slowest. It is quick for all others.
func (s *slowest) note(q *request, took time.Duration) {
	ended := q.start.Add(took)
	if int64(took) <= s.floor.Load() && ended.UnixNano() < s.windowEnds.Load() || q.longRunning() {
		return
	}
	one := servedRow{took: took, ended: ended, what: cellText(q.loggedVerb() + " " + q.loggedURI()), code: q.code}
	if u := q.info.User; u != nil {
		one.user = u.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(ended)
	i, _ := slices.BinarySearchFunc(s.current, one, func(a, b servedRow) int { return cmp.Compare(b.took, a.took) })
	s.current = slices.Insert(s.current, i, one)
	if len(s.current) > overviewRows {
		s.current = slices.Delete(s.current, overviewRows, len(s.current))
	}
	if len(s.current) == overviewRows {
		s.floor.Store(int64(s.current[overviewRows-1].took))
	}
}

// turn begins another window if the one that runs has ended. The caller holds mu.
func (s *slowest) turn(now time.Time) {
	ends := time.Unix(0, s.windowEnds.Load())
	if now.Before(ends) {
		return
	}
	s.before = s.current
	if now.Sub(ends) > slowestWindow {
		s.before = nil
	}
	s.current = nil
	s.floor.Store(0)
	s.windowEnds.Store(now.Add(slowestWindow).UnixNano())
}

// all returns the slowest requests, slowest first.
func (s *slowest) all(now time.Time) []servedRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(now)
	all := slices.Concat(s.current, s.before)
	slices.SortStableFunc(all, func(a, b servedRow) int { return cmp.Compare(b.took, a.took) })
	return all[:min(len(all), overviewRows)]
}
