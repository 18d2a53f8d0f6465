package conformance

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

const (
	tableSource = concepts + ", Receiving resources as Tables"
	asTable     = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

var tableChecks = []Check{
	{ID: "tables.list", Level: Must, Source: tableSource,
		About: "A list as a Table has a row for each object and a cell for each column.", run: tablesList},
	{ID: "tables.get", Level: Must, Source: tableSource,
		About: "A get as a Table has one row.", run: tablesGet},
	{ID: "tables.metadata", Level: Must, Source: tableSource + "; Retrieving large results sets in chunks",
		About: "A Table has the version and the continue token of its collection.", run: tablesMetadata},
	{ID: "tables.fallback", Level: Must, Source: tableSource,
		About: "A request that prefers a Table and accepts JSON gets one of the two.", run: tablesFallback},
	{ID: "tables.default", Level: Must, Source: tableSource,
		About: "A type without columns of its own has the columns Name and Created At, which servers call Age since v1.11.", run: tablesDefault},
}

// table is a response as Table.
type table struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	ColumnDefinitions []struct {
		Name string `json:"name"`
		Type string `json:"type"`
	} `json:"columnDefinitions"`
	Rows []struct {
		Cells  []any  `json:"cells"`
		Object object `json:"object"`
	} `json:"rows"`
}

// table asks for one.
func (p *probe) table(path, query string) table {
	a := p.send(request{method: http.MethodGet, path: path, query: query, accept: asTable})
	if a.code == http.StatusNotAcceptable {
		p.absentf("%s", a.describe())
	}
	p.want(a, http.StatusOK)
	var t table
	if err := json.Unmarshal(a.body, &t); err != nil {
		p.failf("the response is no Table: %v", err)
	}
	if t.Kind != "Table" || t.APIVersion != "meta.k8s.io/v1" {
		p.failf("the response is a %s of %s, want a Table of meta.k8s.io/v1", t.Kind, t.APIVersion)
	}
	if len(t.ColumnDefinitions) == 0 {
		p.failf("the Table has no columns")
	}
	for i, row := range t.Rows {
		if len(row.Cells) != len(t.ColumnDefinitions) {
			p.failf("row %d has %d cells for %d columns", i+1, len(row.Cells), len(t.ColumnDefinitions))
		}
	}
	return t
}

// mine are the rows of objects of this check.
func (t table) mine(prefix string) []string {
	var names []string
	for _, row := range t.Rows {
		if name := row.Object.name(); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

func tablesList(p *probe) {
	p.create("a", "1")
	p.create("b", "1")
	t := p.table(p.all(), "")
	if got, want := t.mine(p.prefix), []string{p.named("a"), p.named("b")}; !slices.Equal(got, want) {
		p.failf("the Table has rows for %v, want %v", got, want)
	}
}

func tablesGet(p *probe) {
	o := p.create("a", "1")
	t := p.table(p.path(o.name()), "")
	if got := t.mine(p.prefix); len(t.Rows) != 1 || !slices.Equal(got, []string{o.name()}) {
		p.failf("the Table has %d rows, of %v: want one, of %s", len(t.Rows), got, o.name())
	}
}

func tablesMetadata(p *probe) {
	for _, name := range []string{"a", "b", "c"} {
		p.create(name, "1")
	}
	l := p.list("")
	t := p.table(p.all(), exact(l.version))
	if t.Metadata.ResourceVersion != l.version {
		p.failf("the Table is of version %q, want %s", t.Metadata.ResourceVersion, l.version)
	}
	if t := p.table(p.all(), "limit=2"); t.Metadata.Continue == "" || len(t.Rows) > 2 {
		p.failf("a Table with limit=2 has %d rows and the continue token %q", len(t.Rows), t.Metadata.Continue)
	}
}

func tablesFallback(p *probe) {
	p.create("a", "1")
	a := p.send(request{method: http.MethodGet, path: p.all(), accept: asTable + ", " + asJSON})
	p.want(a, http.StatusOK)
	if kind := p.object(a).text("kind"); kind != "Table" && kind != p.resource.kind+"List" {
		p.failf("the response is a %q, want a Table or a %sList", kind, p.resource.kind)
	}
}

func tablesDefault(p *probe) {
	p.resource = p.custom()
	p.post(p.fresh("a", "1"), "")
	t := p.table(p.all(), "")
	var names []string
	for _, c := range t.ColumnDefinitions {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"Name", "Created At"}) && !slices.Equal(names, []string{"Name", "Age"}) {
		p.failf("the columns are %q, want Name and Created At, or Age", names)
	}
}
