package conformance

import (
	"net/http"
	"net/url"
	"strings"
)

// cell is a combination of parameters in the table of lists.
type cell struct {
	// match is the resourceVersionMatch, and paging says whether limit or continue is set.
	// version is the resourceVersion: "", "0", or "n" for an earlier one.
	match   string
	paging  paging
	version string
	means   meaning
}

type paging string

const (
	whole     paging = ""
	limited   paging = "limit"
	continued paging = "continue"
)

// meaning is the meaning of a cell of the table.
type meaning string

const (
	mostRecent   meaning = "Most Recent"
	anyState     meaning = "Any"
	notOlderThan meaning = "Not older than"
	exactly      meaning = "Exact"
	atToken      meaning = "Continue Token, Exact"
	invalid      meaning = "Invalid"
	badRequest   meaning = "Invalid, HTTP 400 Bad Request"
)

// cells is the documents' table, row by row.
var cells = []cell{
	{"", whole, "", mostRecent}, {"", whole, "0", anyState}, {"", whole, "n", notOlderThan},
	{"", limited, "", mostRecent}, {"", limited, "0", anyState}, {"", limited, "n", exactly},
	{"", continued, "", atToken}, {"", continued, "0", atToken}, {"", continued, "n", badRequest},
	{"Exact", whole, "", invalid}, {"Exact", whole, "0", invalid}, {"Exact", whole, "n", exactly},
	{"Exact", limited, "", invalid}, {"Exact", limited, "0", invalid}, {"Exact", limited, "n", exactly},
	{"NotOlderThan", whole, "", invalid}, {"NotOlderThan", whole, "0", anyState}, {"NotOlderThan", whole, "n", notOlderThan},
	{"NotOlderThan", limited, "", invalid}, {"NotOlderThan", limited, "0", anyState}, {"NotOlderThan", limited, "n", notOlderThan},
}

const listTable = concepts + ", Semantics for get and list"

// id names a cell: list.exact.limit.n.
func (c cell) id() string {
	parts := []string{"list", "unset", "whole", "unset"}
	if c.match != "" {
		parts[1] = strings.ToLower(c.match)
	}
	if c.paging != whole {
		parts[2] = string(c.paging)
	}
	if c.version != "" {
		parts[3] = c.version
	}
	return strings.Join(parts, ".")
}

// String is how the parameters are written.
func (c cell) String() string {
	var parts []string
	for _, x := range [][2]string{{"resourceVersionMatch", c.match}, {"resourceVersion", strings.ToUpper(c.version)}} {
		if x[1] != "" {
			parts = append(parts, x[0]+"="+x[1])
		}
	}
	switch c.paging {
	case limited:
		parts = append(parts, "limit")
	case continued:
		parts = append(parts, "limit and continue")
	}
	if len(parts) == 0 {
		return "no parameters"
	}
	return strings.Join(parts, ", ")
}

func listChecks() []Check {
	var all []Check
	for _, c := range cells {
		all = append(all, Check{
			ID: c.id(), Level: Must, Source: listTable + " (" + c.String() + ")",
			About: "A list with " + c.String() + ": " + string(c.means) + ".", run: c.run,
		})
	}
	return append(all, []Check{
		{ID: "list.match-unknown", Level: Should, Source: kep2523 + ", Add a ResourceVersionMatch query parameter (enumeration)",
			About: "An unknown resourceVersionMatch is refused.", run: listMatchUnknown},
		{ID: "list.one-name", Level: Must, Source: listTable + " (limit, resourceVersion=N)",
			About: "A list of one name with a limit and a version is Exact.", run: listOneName},
		{ID: "list.selector", Level: Must, Source: kep2523 + ", ResourceVersionMatchExact",
			About: "A list with Exact and a label selector is the exact state.", run: listSelector},
	}...)
}

// past is a collection with a history: the states at two versions that were listed,
// and the most recent one.
type past struct {
	first, second     list
	atFirst, atSecond state
}

// makePast makes one: the first state is {a, b, c}, and {a', b, d} the second.
func (p *probe) makePast() past {
	a, b, c := p.create("a", "1"), p.create("b", "1"), p.create("c", "1")
	first := p.list("")
	p.wantState("the list after three writes", p.mine(first), states(a, b, c))
	a2 := p.update(a, "2")
	p.remove("c")
	d := p.create("d", "1")
	second := p.list("")
	p.wantState("the list after three more writes", p.mine(second), states(a2, b, d))
	return past{first, second, states(a, b, c), states(a2, b, d)}
}

// query is the parameters of a cell, with a version for N.
func (c cell) query(version string) string {
	q := url.Values{}
	if c.match != "" {
		q.Set("resourceVersionMatch", c.match)
	}
	switch c.version {
	case "0":
		q.Set("resourceVersion", "0")
	case "n":
		q.Set("resourceVersion", version)
	}
	return q.Encode()
}

func (c cell) run(p *probe) {
	h := p.makePast()
	switch c.means {
	case mostRecent:
		p.wantState("the most recent list", p.mine(c.ask(p, "")), h.atSecond)
	case anyState:
		// Any state may come, but it has to be one.
		l := p.anyList(c.query("") + c.limit())
		for _, o := range l.items {
			p.wantNotOlder("a list that holds "+o.name(), l.version, o.version())
		}
		if p.compare(l.version, h.second.version) >= 0 {
			p.wantState("a list at the most recent version or past it", p.mine(l), h.atSecond)
		}
	case notOlderThan:
		l := c.ask(p, h.second.version)
		p.wantNotOlder("the list", l.version, h.second.version)
		p.wantState("a list that is not older than the last write", p.mine(l), h.atSecond)
	case exactly:
		l := c.ask(p, h.first.version)
		if l.version != h.first.version {
			p.failf("the list is of version %s, want exactly %s", l.version, h.first.version)
		}
		p.wantState("the list at exactly "+l.version, p.mine(l), h.atFirst)
	case invalid:
		p.wantRefusal(p.send(request{method: http.MethodGet, path: p.all(), query: c.query(h.first.version) + c.limit()}))
	case atToken, badRequest:
		c.continues(p, h)
	}
}

// limit returns the cell's limit as a query parameter, with its separator.
func (c cell) limit() string {
	if c.paging == limited {
		return "&limit=2"
	}
	return ""
}

// ask lists with the parameters of a cell, in chunks where it has a limit.
func (c cell) ask(p *probe, version string) list {
	if c.paging == limited {
		return p.pages(c.query(version), 2)
	}
	return p.list(c.query(version))
}

// anyList lists, and follows chunks where they come.
func (p *probe) anyList(query string) list {
	l := p.list(query)
	for n := 0; l.next != ""; n++ {
		if n > maxPages {
			p.failf("the list did not end after %d chunks", maxPages)
		}
		more := p.list("limit=2&continue=" + url.QueryEscape(l.next))
		if more.version != l.version {
			p.failf("a chunk is of version %s, the first of %s", more.version, l.version)
		}
		l.items, l.next = append(l.items, more.items...), more.next
	}
	return l
}

// continues checks a continue token that comes with a version. The first chunk is from the
// second state, and the check writes before it requests the next chunk.
func (c cell) continues(p *probe, h past) {
	first := p.list("limit=1")
	if first.next == "" {
		p.failf("a list of 3 objects with limit=1 has no continue token")
	}
	p.create("e", "1")
	p.remove("d")
	q := joinQuery(c.query(h.first.version), "limit=500", "continue="+url.QueryEscape(first.next))
	a := p.send(request{method: http.MethodGet, path: p.all(), query: q})
	if c.means == badRequest {
		if a.code != http.StatusBadRequest {
			p.failf("got %s, want 400", a.describe())
		}
		return
	}
	p.want(a, http.StatusOK)
	rest := p.listIn(a)
	if rest.version != first.version {
		p.failf("the chunk is of version %s, the first one of %s", rest.version, first.version)
	}
	both := list{items: append(first.items, rest.items...)}
	p.wantState("both chunks", p.mine(both), h.atSecond)
	if got := len(p.mine(first)) + len(p.mine(rest)); got != len(h.atSecond) {
		p.failf("both chunks hold %d objects, want %d: some came twice", got, len(h.atSecond))
	}
}

func listMatchUnknown(p *probe) {
	l := p.list("")
	p.wantRefusal(p.send(request{method: http.MethodGet, path: p.all(), query: "resourceVersionMatch=Nearly&resourceVersion=" + l.version}))
}

func listOneName(p *probe) {
	h := p.makePast()
	name := p.named("a")
	l := p.list("limit=5&resourceVersion=" + h.first.version + "&fieldSelector=metadata.name%3D" + name)
	if l.version != h.first.version {
		p.failf("the list is of version %s, want exactly %s", l.version, h.first.version)
	}
	p.wantState("the list of one name at exactly "+l.version, p.mine(l), state{name: h.atFirst[name]})
}

func listSelector(p *probe) {
	h := p.makePast()
	l := p.list(exact(h.first.version) + "&labelSelector=" + url.QueryEscape(markLabel+"=1"))
	if l.version != h.first.version {
		p.failf("the list is of version %s, want exactly %s", l.version, h.first.version)
	}
	p.wantState("the selected list at exactly "+l.version, p.mine(l), h.atFirst)
}
