package conformance

import (
	"fmt"
	"net/http"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

const versionsIn = concepts + ", resourceVersion fields in metadata"

var versionChecks = []Check{
	{ID: "versions.object", Level: Must, Source: versionsIn,
		About: "An object has a version, and it is the same in the response to its write and in a read.", run: versionsObject},
	{ID: "versions.change", Level: Must, Source: versionsIn,
		About: "A modification gives the object a new version.", run: versionsChange},
	{ID: "versions.unchanged", Level: Must, Source: versionsIn,
		About: "An object keeps its version while only others are modified.", run: versionsUnchanged},
	{ID: "versions.list", Level: Must, Source: versionsIn,
		About: "A collection has a version, and each of its items has the version of its last modification.", run: versionsList},
	{ID: "versions.no-op", Level: Should, Source: versionsIn + " (the version at which it was last modified)",
		About: "A PUT that changes nothing keeps the version.", run: versionsNoOp},
}

func versionsObject(p *probe) {
	made := p.create("a", "1")
	if made.version() == "" {
		p.failf("the response to a create has no resourceVersion")
	}
	if o := p.read("a", ""); o.version() != made.version() {
		p.failf("GET responses version %q, want %q as the create did", o.version(), made.version())
	}
	changed := p.update(made, "2")
	if o := p.read("a", ""); o.version() != changed.version() {
		p.failf("GET responses version %q, want %q as the update did", o.version(), changed.version())
	}
}

func versionsChange(p *probe) {
	o := p.create("a", "0")
	seen := map[string]bool{o.version(): true}
	for i := range 5 {
		o = p.update(o, fmt.Sprint(i+1))
		if seen[o.version()] {
			p.failf("after an update the object has the version %s that it had before", o.version())
		}
		seen[o.version()] = true
	}
}

func versionsUnchanged(p *probe) {
	a := p.create("a", "1")
	p.update(p.create("b", "1"), "2")
	p.remove("b")
	if o := p.read("a", ""); o.version() != a.version() {
		p.failf("the version went from %s to %s, though only another object was modified", a.version(), o.version())
	}
}

func versionsList(p *probe) {
	a, b := p.create("a", "1"), p.create("b", "1")
	a = p.update(a, "2")
	p.wantState("the items", p.mine(p.list("")), states(a, b))
}

func versionsNoOp(p *probe) {
	made := p.create("a", "1")
	if o := p.put(made, ""); o.version() != made.version() {
		p.failf("the version went from %s to %s", made.version(), o.version())
	}
}

var comparableChecks = []Check{
	{ID: "comparable.well-formed", Level: Must, Source: kep5504 + ", Proposal",
		About: "Versions of objects, lists and events are decimal integers without leading zeros, above 0 and below 2^128.", run: comparableWellFormed},
	{ID: "comparable.grows", Level: Must, Source: kep5504 + ", Summary",
		About: "The version of an object increases with each modification, and once more with its deletion.", run: comparableGrows},
	{ID: "comparable.order", Level: Must, Source: kep5504 + ", User Stories, Story 1",
		About: "Of two objects of a type, the one that was written later has the greater version.", run: comparableOrder},
	{ID: "comparable.list", Level: Must, Source: kep5504 + ", User Stories, Story 2",
		About: "A list is at least as new as each of its items, and as each write before it.", run: comparableList},
}

// limit128 is 2^128: KEP-5504's tests hold versions below it.
const limit128 = "340282366920938463463374607431768211456"

// wellFormed returns an error if a version is malformed.
func wellFormed(version string) error {
	order, err := resourceversion.Compare(version, limit128)
	if err == nil && order >= 0 {
		err = fmt.Errorf("the version %.60s is not below 2^128", version)
	}
	return err
}

func (p *probe) wantWellFormed(what, version string) {
	if err := wellFormed(version); err != nil {
		p.failf("%s: %v", what, err)
	}
}

func comparableWellFormed(p *probe) {
	l := p.list("")
	p.wantWellFormed("the list", l.version)
	s := p.watch("resourceVersion=" + l.version)
	defer s.close()
	a := p.create("a", "1")
	p.wantWellFormed("the created object", a.version())
	p.wantWellFormed("the updated object", p.update(a, "2").version())
	p.remove("a")
	for _, kind := range []string{added, modified, deleted} {
		p.wantWellFormed("the event "+kind, s.want(kind, "a", "").Object.version())
	}
}

func comparableGrows(p *probe) {
	s := p.watch("resourceVersion=" + p.list("").version)
	defer s.close()
	o := p.create("a", "0")
	for i := range 5 {
		next := p.update(o, fmt.Sprint(i+1))
		p.wantNewer("the object after an update", next.version(), o.version())
		o = next
	}
	p.remove("a")
	end := s.until("the deletion", func(e event) bool { return e.Type == deleted })
	p.wantNewer("the deletion", end[len(end)-1].Object.version(), o.version())
}

func comparableOrder(p *probe) {
	last := p.create("0", "1")
	for i := range 7 {
		next := p.create(fmt.Sprint(i+1), "1")
		p.wantNewer("the object "+next.name(), next.version(), last.version())
		last = next
	}
}

func comparableList(p *probe) {
	for i := range 5 {
		o := p.create(fmt.Sprint(i), "1")
		l := p.list("")
		p.wantNotOlder("a list that was asked for after a write", l.version, o.version())
		for _, x := range l.items {
			p.wantNotOlder("a list that holds "+x.name(), l.version, x.version())
		}
	}
}

var getChecks = []Check{
	{ID: "get.most-recent", Level: Must, Source: concepts + ", Semantics for get and list (get, resourceVersion unset)",
		About: "A get without a version returns the most recent state, on any connection.", run: getMostRecent},
	{ID: "get.any", Level: Must, Source: concepts + ", Semantics for get and list (get, resourceVersion=\"0\")",
		About: "A get with version 0 returns any state.", run: getAny},
	{ID: "get.not-older", Level: Must, Source: concepts + ", Semantics for get and list (get, another value)",
		About: "A get with a version returns a state that is not older.", run: getNotOlder},
	{ID: "get.not-older-by-others", Level: Must, Source: concepts + ", Semantics for get and list (get, another value)",
		About: "A get may give the version of another object: it selects a state, not the object's own version.", run: getNotOlderByOthers},
	{ID: "get.match", Level: May, Source: kep2523 + ", Impact on get calls",
		About: "A get has no resourceVersionMatch: with Exact it is still not an exact read.", run: getMatch},
	{ID: "get.malformed", Level: Should, Source: conceptsRV + " (passed unmodified back to the server)",
		About: "An invalid version is a client error (400 to 499) on get, list and watch.", run: getMalformed},
}

func getMostRecent(p *probe) {
	other, err := p.bed.endpoint.dial()
	if err != nil {
		p.failf("%v", err)
	}
	defer other.close()
	o := p.create("a", "0")
	for i := range 10 {
		o = p.update(o, fmt.Sprint(i+1))
		for _, c := range []*conn{p.conn, other} {
			a := p.send(request{method: http.MethodGet, path: p.path(o.name()), conn: c})
			p.want(a, http.StatusOK)
			if got := p.object(a).version(); got != o.version() {
				p.failf("got version %s right after the write of %s", got, o.version())
			}
		}
	}
}

func getAny(p *probe) {
	made := p.create("a", "1")
	a := p.send(request{method: http.MethodGet, path: p.path(made.name()), query: "resourceVersion=0"})
	if a.code == http.StatusNotFound {
		return // a state from before
	}
	p.want(a, http.StatusOK)
	if o := p.object(a); o.version() != made.version() {
		p.failf("got version %q, want %s: the object never had another one", o.version(), made.version())
	}
}

func getNotOlder(p *probe) {
	o := p.create("a", "0")
	for i := range 5 {
		o = p.update(o, fmt.Sprint(i+1))
		if got := p.read("a", "resourceVersion="+o.version()); got.version() != o.version() {
			p.failf("got version %s, want %s", got.version(), o.version())
		}
	}
}

func getNotOlderByOthers(p *probe) {
	a := p.create("a", "1")
	b := p.create("b", "1")
	if got := p.read("a", "resourceVersion="+b.version()); got.version() != a.version() {
		p.failf("got version %s, want %s", got.version(), a.version())
	}
}

func getMatch(p *probe) {
	first := p.create("a", "1")
	second := p.update(first, "2")
	if got := p.read("a", exact(first.version())); got.version() != second.version() {
		p.failf("got version %s, want %s", got.version(), second.version())
	}
}

func getMalformed(p *probe) {
	o := p.create("a", "1")
	for _, r := range []request{
		{path: p.path(o.name()), query: "resourceVersion=none"},
		{path: p.all(), query: "resourceVersion=none"},
		{path: p.all(), query: "watch=1&timeoutSeconds=1&resourceVersion=none"},
	} {
		r.method = http.MethodGet
		p.wantRefusal(p.send(r))
	}
}
