package conformance

import (
	"bytes"
	"net/http"
	"strings"
)

const (
	validationSource = concepts + ", Field validation"
	levelSource      = concepts + ", Validation for unrecognized or duplicate fields"
)

var validationChecks = []Check{
	{ID: "validation.type", Level: Must, Source: validationSource,
		About: "A field of the wrong type is 400 at every level, and the message does not mention unknown fields.", run: validationType},
	{ID: "validation.ignore", Level: Must, Source: levelSource + " (Ignore)",
		About: "With Ignore, unknown fields and all but the last of duplicate fields are dropped without a warning.", run: validationIgnore},
	{ID: "validation.warn", Level: Must, Source: levelSource + " (Warn)",
		About: "With Warn, the request succeeds with a warning for each unknown or duplicate field.", run: validationWarn},
	{ID: "validation.default", Level: Must, Source: levelSource + " (Warn)",
		About: "Warn is the default.", run: validationDefault},
	{ID: "validation.strict", Level: Must, Source: levelSource + " (Strict)",
		About: "With Strict, a create with unknown or duplicate fields is 400, names them all, and writes nothing.", run: validationStrict},
	{ID: "validation.strict-update", Level: Must, Source: levelSource + " (Strict)",
		About: "With Strict, an update with unknown or duplicate fields is 400, names them all, and writes nothing.", run: validationStrictUpdate},
	{ID: "validation.strict-patch", Level: Must, Source: levelSource + " (Strict)",
		About: "With Strict, a patch with unknown or duplicate fields is 400, names them all, and writes nothing.", run: validationStrictPatch},
	{ID: "validation.level", Level: Should, Source: levelSource,
		About: "An unknown level is refused (400 to 499).", run: validationLevel},
}

// flawed writes an object with an unknown field and a duplicate one.
func flawed(o object) []byte {
	b := bytes.Replace(o.encode(), []byte(`{`), []byte(`{"bogus":1,`), 1)
	return bytes.Replace(b, []byte(`"metadata":{`), []byte(`"metadata":{"annotations":{"which":"first"},"annotations":{"which":"last"},`), 1)
}

// postFlawed creates a flawed object at a level.
func (p *probe) postFlawed(name, query string) *response {
	r := p.posting(p.fresh(name, "1"), query)
	r.body = flawed(p.fresh(name, "1"))
	return p.send(r)
}

func validationType(p *probe) {
	for _, level := range []string{"", "Ignore", "Warn", "Strict"} {
		r := p.posting(p.fresh("a", "1"), "fieldValidation="+level)
		r.body = bytes.Replace(flawed(p.fresh("a", "1")), []byte(`"labels":{`), []byte(`"labels":["none"],"unused":{`), 1)
		a := p.send(r)
		if a.code != http.StatusBadRequest {
			p.failf("at the level %q: got %s, want 400", level, a.describe())
		}
		if strings.Contains(a.status().text("message"), `"bogus"`) {
			p.failf("at the level %q the message mentions the unknown field: %s", level, a.describe())
		}
	}
}

// wantDropped holds a created object to be without its flaws.
func (p *probe) wantDropped(a *response, name string) {
	p.want(a, http.StatusCreated)
	for _, o := range []object{p.object(a), p.read(name, "")} {
		if o.at("bogus") != nil {
			p.failf("the unknown field is there: %v", o.at("bogus"))
		}
	}
}

func validationIgnore(p *probe) {
	a := p.postFlawed("a", "fieldValidation=Ignore")
	p.wantDropped(a, "a")
	if w := a.header.Values("Warning"); len(w) > 0 {
		p.failf("there are warnings: %q", w)
	}
}

func (p *probe) wantWarnings(a *response) {
	warnings := a.header.Values("Warning")
	for _, field := range []string{"bogus", "annotations"} {
		n := 0
		for _, w := range warnings {
			if strings.Contains(w, field) {
				n++
			}
		}
		if n != 1 {
			p.failf("%d warnings tell of %s, want one: %q", n, field, warnings)
		}
	}
}

func validationWarn(p *probe) {
	a := p.postFlawed("a", "fieldValidation=Warn")
	p.wantDropped(a, "a")
	p.wantWarnings(a)
}

func validationDefault(p *probe) {
	a := p.postFlawed("a", "")
	p.wantDropped(a, "a")
	p.wantWarnings(a)
}

// wantStrict holds a response to refuse some fields by their names.
func (p *probe) wantStrict(a *response, fields ...string) {
	if a.code != http.StatusBadRequest {
		p.failf("got %s, want 400", a.describe())
	}
	for _, field := range fields {
		if m := a.status().text("message"); !strings.Contains(m, field) {
			p.failf("the message does not tell of %s: %s", field, clip(m))
		}
	}
}

func validationStrict(p *probe) {
	p.wantStrict(p.postFlawed("a", "fieldValidation=Strict"), "bogus", "annotations")
	p.wantAbsent("a")
}

func validationStrictUpdate(p *probe) {
	o := p.create("a", "1")
	a := p.send(request{method: http.MethodPut, path: p.path(o.name()), query: "fieldValidation=Strict", body: flawed(o)})
	p.wantStrict(a, "bogus", "annotations")
	if got := p.read("a", ""); got.version() != o.version() {
		p.failf("the refused update was made: the version went from %s to %s", o.version(), got.version())
	}
}

func validationStrictPatch(p *probe) {
	p.create("a", "1")
	a := p.patch("a", mergePatch, "fieldValidation=Strict", `{"bogus":1}`)
	if a.code == http.StatusNotImplemented || a.code == http.StatusMethodNotAllowed || a.code == http.StatusUnsupportedMediaType {
		p.absentf("%s", a.describe())
	}
	p.wantStrict(a, "bogus")
}

func validationLevel(p *probe) {
	p.wantRefusal(p.postFlawed("a", "fieldValidation=Sometimes"))
}
