package conformance

import (
	"net/http"
	"net/url"
)

const dryRunSource = concepts + ", Make a dry-run request"

var dryRunChecks = []Check{
	{ID: "dryrun.create", Level: Must, Source: dryRunSource,
		About: "A create with dryRun=All returns the object with 201 and writes nothing.", run: dryRunCreate},
	{ID: "dryrun.update", Level: Must, Source: dryRunSource,
		About: "An update with dryRun=All returns the changed object and writes nothing.", run: dryRunUpdate},
	{ID: "dryrun.patch", Level: Must, Source: dryRunSource,
		About: "A patch with dryRun=All returns the merged object and writes nothing.", run: dryRunPatch},
	{ID: "dryrun.delete", Level: Must, Source: dryRunSource,
		About: "A delete with dryRun=All succeeds and deletes nothing.", run: dryRunDelete},
	{ID: "dryrun.collection", Level: Must, Source: dryRunSource,
		About: "A deletecollection with dryRun=All succeeds and deletes nothing.", run: dryRunCollection},
	{ID: "dryrun.stages", Level: Must, Source: dryRunSource,
		About: "All stages before storage run, so an invalid request fails with dryRun=All too.", run: dryRunStages},
	{ID: "dryrun.events", Level: Must, Source: concepts + ", Dry-run",
		About: "A dry run causes no watch events.", run: dryRunEvents},
	{ID: "dryrun.no-value", Level: Must, Source: dryRunSource + " (no value set)",
		About: "A request with an empty dryRun is carried out.", run: dryRunNoValue},
	{ID: "dryrun.other-value", Level: Must, Source: dryRunSource + " (the only accepted values)",
		About: "Any other value is refused (400 to 499), and nothing is written.", run: dryRunOtherValue},
}

const dryRun = "dryRun=All"

func dryRunCreate(p *probe) {
	o := p.post(p.fresh("a", "1"), dryRun)
	if o.name() != p.named("a") || o.mark() != "1" || o.uid() == "" {
		p.failf("the response is the object %q with the label %q and uid %q", o.name(), o.mark(), o.uid())
	}
	p.wantAbsent("a")
}

// wantUntouched holds an object to be as it was.
func (p *probe) wantUntouched(o object) {
	a := p.send(request{method: http.MethodGet, path: p.path(o.name())})
	p.want(a, http.StatusOK)
	if got := p.object(a); got.version() != o.version() || got.mark() != o.mark() {
		p.failf("the object went from %s with the label %q to %s with %q", o.version(), o.mark(), got.version(), got.mark())
	}
}

func dryRunUpdate(p *probe) {
	o := p.create("a", "1")
	changed := o.copied()
	changed.label(markLabel, "2")
	if got := p.put(changed, dryRun); got.mark() != "2" {
		p.failf("the response has the label %q, want %q", got.mark(), "2")
	}
	p.wantUntouched(o)
}

func dryRunPatch(p *probe) {
	o := p.create("a", "1")
	got := p.wantPatched(p.patch("a", mergePatch, dryRun, `{"metadata":{"labels":{"`+markLabel+`":"2"}}}`))
	if got.mark() != "2" {
		p.failf("the response has the label %q, want %q", got.mark(), "2")
	}
	p.wantUntouched(o)
}

func dryRunDelete(p *probe) {
	o := p.create("a", "1")
	p.want(p.send(request{method: http.MethodDelete, path: p.path(o.name()), query: dryRun}), http.StatusOK)
	p.wantUntouched(o)
}

func dryRunCollection(p *probe) {
	o := p.create("a", "dry")
	a := p.send(request{method: http.MethodDelete, path: p.all(), query: dryRun + "&labelSelector=" + url.QueryEscape(markLabel+"=dry")})
	p.want(a, http.StatusOK)
	p.wantUntouched(o)
}

func dryRunStages(p *probe) {
	o := p.create("a", "1")
	p.want(p.send(p.posting(p.fresh("b", "1"), dryRun)), http.StatusCreated)
	p.want(p.send(p.posting(p.fresh("a", "2"), dryRun)), http.StatusConflict)
	p.wantStrict(p.postFlawed("c", dryRun+"&fieldValidation=Strict"), "bogus")
	p.wantUntouched(o)
}

func dryRunEvents(p *probe) {
	a := p.create("a", "1")
	s := p.watch("resourceVersion=" + a.version())
	defer s.close()
	p.post(p.fresh("b", "1"), dryRun)
	changed := a.copied()
	changed.label(markLabel, "2")
	p.put(changed, dryRun)
	p.want(p.send(request{method: http.MethodDelete, path: p.path(a.name()), query: dryRun}), http.StatusOK)
	c := p.create("c", "1")
	s.want(added, "c", c.version())
}

func dryRunNoValue(p *probe) {
	for name, query := range map[string]string{"a": "dryRun", "b": "dryRun="} {
		p.want(p.send(p.posting(p.fresh(name, "1"), query)), http.StatusCreated)
		p.read(name, "")
	}
}

func dryRunOtherValue(p *probe) {
	p.wantRefusal(p.send(p.posting(p.fresh("a", "1"), "dryRun=Some")))
	p.wantAbsent("a")
}
