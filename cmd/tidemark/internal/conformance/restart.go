package conformance

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const waitsRestart = "the server to be restarted"

var restartChecks = []Check{
	{ID: "restart.objects", Level: Must, Source: watchSource + " (the version as stored in the persistence layer)",
		About: "A restart changes no object and no version.", Waits: waitsRestart, run: restartObjects},
	{ID: "restart.versions", Level: Must, Source: kep5504 + ", Summary",
		About: "Versions keep increasing after a restart.", Waits: waitsRestart, run: restartVersions},
	{ID: "restart.watch", Level: Must, Source: watchSource + "; " + goneSource,
		About: "A watch from a version before the restart gets all changes since then, or 410.", Waits: waitsRestart, run: restartWatch},
	{ID: "restart.exact", Level: Must, Source: listTable + " (Exact); " + goneSource,
		About: "A list at a version before the restart is exact, or 410.", Waits: waitsRestart, run: restartExact},
	{ID: "restart.chunks", Level: Must, Source: chunkSource,
		About: "A continue token from before the restart continues the same list, or is 410.", Waits: waitsRestart, run: restartChunks},
	{ID: "restart.consistency", Level: Must, Source: watchSource + "; " + goneSource + "; " + kep5504 + ", Motivation",
		About: "During concurrent writes, watches and lists, a restart loses no write, loses or repeats no event, and never goes back in time. A list at R plus the events up to R' equals the list at R'.", Waits: waitsRestart, run: restartConsistency},
}

// restartTimeout bounds a restart, from the command to the first response.
const restartTimeout = 2 * time.Minute

// restart restarts the server, and returns when it responds again.
func (p *probe) restart() {
	ctx, cancel := context.WithTimeout(p.ctx, restartTimeout)
	defer cancel()
	if err := p.bed.options.Restart(ctx); err != nil {
		p.interrupted()
		err = fmt.Errorf("the server could not be restarted: %w", err)
		p.bed.cannot(err)
		p.skipf("%v", err)
	}
	for range 2 { // the first response may be the last of the old process
		for {
			p.conn.close()
			p.bed.conn.close()
			a, err := p.bed.endpoint.send(ctx, p.conn, request{method: http.MethodGet, path: p.all(), query: "limit=1"}, &journal{})
			if err == nil && a.code == http.StatusOK {
				break
			}
			if ctx.Err() != nil {
				p.failf("the server did not respond within %v of its restart: %v", restartTimeout, err)
			}
			p.pause()
		}
		p.pause()
	}
}

// needsRestart ends a check before it does anything for nothing.
func (p *probe) needsRestart() {
	if p.bed.options.Restart == nil {
		p.skipf("needs a command that restarts the server")
	}
}

func restartObjects(p *probe) {
	p.needsRestart()
	want := p.seven()
	p.remove("0")
	delete(want, p.named("0"))
	l := p.list("")
	p.restart()
	after := p.list("")
	p.wantState("the list after the restart", p.mine(after), want)
	p.wantNotOlder("the list after the restart", after.version, l.version)
}

func restartVersions(p *probe) {
	p.needsRestart()
	a := p.update(p.create("a", "1"), "2")
	p.create("b", "1")
	p.remove("b")
	before := p.list("").version
	p.restart()
	p.wantNewer("an update after the restart", p.update(a, "3").version(), before)
	p.wantNewer("a create after the restart", p.create("c", "1").version(), before)
}

func restartWatch(p *probe) {
	p.needsRestart()
	a := p.create("a", "1")
	a2 := p.update(a, "2")
	b := p.create("b", "1")
	p.restart()
	b2 := p.update(b, "2")
	s, refused := p.openWatch(nil, p.all(), "resourceVersion="+a.version())
	if s == nil {
		if refused.code != http.StatusGone {
			p.failf("got %s, want the watch, or 410", refused.describe())
		}
		return
	}
	defer s.close()
	for _, want := range []event{{modified, a2}, {added, b}, {modified, b2}} {
		for {
			e := s.next(want.String() + ", or 410")
			if e.Type == failure {
				if e.code() != http.StatusGone {
					p.failf("an ERROR came with code %d, want 410", e.code())
				}
				return
			}
			if e.Type == bookmark || !p.owns(e) {
				continue
			}
			if e.String() != want.String() {
				p.failf("got the event %s, want %s, or 410", e, want)
			}
			break
		}
	}
}

func restartExact(p *probe) {
	p.needsRestart()
	h := p.makePast()
	p.restart()
	a := p.send(request{method: http.MethodGet, path: p.all(), query: exact(h.first.version)})
	if a.code == http.StatusGone {
		return
	}
	p.want(a, http.StatusOK)
	l := p.listIn(a)
	if l.version != h.first.version {
		p.failf("the list is of version %s, want exactly %s", l.version, h.first.version)
	}
	p.wantState("the list at exactly "+l.version, p.mine(l), h.atFirst)
}

func restartChunks(p *probe) {
	p.needsRestart()
	want := p.seven()
	first := p.list("limit=3")
	p.remove("6")
	p.restart()
	p.create("new", "1")
	a := p.send(request{method: http.MethodGet, path: p.all(), query: "limit=500&continue=" + url.QueryEscape(first.next)})
	if a.code == http.StatusGone {
		return
	}
	p.want(a, http.StatusOK)
	rest := p.listIn(a)
	if rest.version != first.version {
		p.failf("the chunk is of version %s, the first one of %s", rest.version, first.version)
	}
	p.wantState("both chunks", p.mine(list{items: append(first.items, rest.items...)}), want)
}
