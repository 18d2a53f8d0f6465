package conformance

import (
	"net/http"
	"slices"
)

const applySource = concepts + ", Server Side Apply"

var applyChecks = []Check{
	{ID: "apply.create", Level: Must, Source: applySource,
		About: "An apply creates an object and records which fields its manager owns.", run: applyCreate},
	{ID: "apply.update-tracked", Level: Must, Source: applySource,
		About: "A plain create records its fields with the operation Update.", run: applyUpdateTracked},
	{ID: "apply.conflict", Level: Must, Source: applySource,
		About: "An apply that changes a field of another manager changes nothing and gets a conflict that names the field.", run: applyConflict},
	{ID: "apply.force", Level: Must, Source: applySource,
		About: "An apply with force takes over fields of other managers.", run: applyForce},
	{ID: "apply.remove", Level: Must, Source: applySource,
		About: "A field that its only manager no longer applies is removed; fields of other managers stay.", run: applyRemove},
	{ID: "apply.again", Level: Must, Source: applySource,
		About: "Repeating an apply changes nothing.", run: applyAgain},
	{ID: "apply.manager", Level: Must, Source: applySource,
		About: "An apply without a fieldManager is refused (400 to 499).", run: applyManager},
}

// applied sends an apply of labels.
func (p *probe) applied(name, query string, labels map[string]string) *response {
	o := p.bed.template(p.resource)
	o.metadata()["name"] = p.named(name)
	for key, value := range labels {
		o.label(key, value)
	}
	p.remember(p.resource, p.named(name))
	a := p.send(request{method: http.MethodPatch, path: p.path(p.named(name)), query: query, contentType: applyPatch, body: o.encode()})
	if a.code == http.StatusUnsupportedMediaType || a.code == http.StatusNotImplemented {
		p.absentf("%s", a.describe())
	}
	return a
}

// Field managers.
const (
	oneManager   = "fieldManager=one"
	otherManager = "fieldManager=other"
)

// managed returns the operations of a field manager of an object.
func (o object) managed(manager string) []string {
	var operations []string
	entries, _ := o.at("metadata", "managedFields").([]any)
	for _, entry := range entries {
		if m, ok := entry.(map[string]any); ok && m["manager"] == manager && m["fieldsV1"] != nil {
			operation, _ := m["operation"].(string)
			operations = append(operations, operation)
		}
	}
	return operations
}

func applyCreate(p *probe) {
	a := p.applied("a", oneManager, map[string]string{markLabel: "1"})
	p.want(a, http.StatusCreated)
	o := p.read("a", "")
	if o.mark() != "1" {
		p.failf("the label has the value %q, want %q", o.mark(), "1")
	}
	if got := o.managed("one"); !slices.Equal(got, []string{"Apply"}) {
		p.failf("the manager \"one\" has the operations %q, want Apply", got)
	}
}

func applyUpdateTracked(p *probe) {
	p.create("a", "1")
	if got := p.read("a", "").managed(userAgent); !slices.Equal(got, []string{"Update"}) {
		if len(got) == 0 {
			p.absentf("a created object has no managed fields of %q", userAgent)
		}
		p.failf("the manager %q has the operations %q, want Update", userAgent, got)
	}
}

func applyConflict(p *probe) {
	p.want(p.applied("a", oneManager, map[string]string{markLabel: "1"}), http.StatusCreated)
	a := p.applied("a", otherManager, map[string]string{markLabel: "2"})
	if a.code != http.StatusConflict {
		p.failf("got %s, want 409", a.describe())
	}
	causes, _ := a.status().at("details", "causes").([]any)
	if !slices.ContainsFunc(causes, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["reason"] == "FieldManagerConflict" && m["field"] != "" && m["field"] != nil
	}) {
		p.failf("the causes name no field with a conflict of managers: %v", causes)
	}
	if o := p.read("a", ""); o.mark() != "1" {
		p.failf("the label has the value %q after the conflict, want %q", o.mark(), "1")
	}
}

func applyForce(p *probe) {
	p.want(p.applied("a", oneManager, map[string]string{markLabel: "1"}), http.StatusCreated)
	p.want(p.applied("a", otherManager+"&force=true", map[string]string{markLabel: "2"}), http.StatusOK)
	if o := p.read("a", ""); o.mark() != "2" {
		p.failf("the label has the value %q, want %q", o.mark(), "2")
	}
	// The field is the other's now.
	if a := p.applied("a", oneManager, map[string]string{markLabel: "3"}); a.code != http.StatusConflict {
		p.failf("got %s for an apply by the manager that lost the field, want 409", a.describe())
	}
}

func applyRemove(p *probe) {
	p.want(p.applied("a", oneManager, map[string]string{markLabel: "1", "mine": "1"}), http.StatusCreated)
	p.want(p.applied("a", otherManager, map[string]string{"theirs": "1"}), http.StatusOK)
	p.want(p.applied("a", oneManager, map[string]string{markLabel: "1"}), http.StatusOK)
	o := p.read("a", "")
	for label, want := range map[string]string{markLabel: "1", "mine": "", "theirs": "1"} {
		if got := o.text("metadata", "labels", label); got != want {
			p.failf("the label %s has the value %q, want %q", label, got, want)
		}
	}
}

func applyAgain(p *probe) {
	p.want(p.applied("a", oneManager, map[string]string{markLabel: "1"}), http.StatusCreated)
	before := p.read("a", "")
	p.want(p.applied("a", oneManager, map[string]string{markLabel: "1"}), http.StatusOK)
	p.wantUntouched(before)
}

func applyManager(p *probe) {
	p.want(p.applied("a", oneManager, map[string]string{markLabel: "1"}), http.StatusCreated)
	p.wantRefusal(p.applied("a", "", map[string]string{markLabel: "2"}))
}
