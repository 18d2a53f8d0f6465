package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Level is how binding a promise is, in the words of RFC 2119.
type Level string

// The levels. Only a Must decides whether a server passes; what the others find is
// told.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
	May    Level = "MAY"
)

// Check is one promise, and how to see whether it is kept.
type Check struct {
	// ID is the area, a dot, and a name; for a type of the sweep, its name too.
	ID string `json:"id"`
	// Level of the promise.
	Level Level `json:"level"`
	// Source is the document and its section.
	Source string `json:"source"`
	// About is the promise, in one sentence.
	About string `json:"about"`
	// Waits says what the check waits for beyond single answers; empty: nothing.
	Waits string `json:"waits,omitempty"`

	run func(p *probe)
}

// Area is the first part of the id.
func (c Check) Area() string {
	area, _, _ := strings.Cut(c.ID, ".")
	return area
}

// Documents, as sources name them.
const (
	concepts   = "API Concepts"
	kep2523    = "KEP-2523"
	kep5504    = "KEP-5504"
	conceptsRV = concepts + ", Resource versions"
)

// area is a group of checks, as the documents group their promises.
type area struct {
	name, about string
	checks      []Check
}

// areas lists all checks, in the order in which they are reported. Those of the
// sweep are made for each type that a server has; here they stand for all.
func areas() []area {
	return []area{
		{"verbs", "names, URIs and verbs of single objects", verbChecks},
		{"versions", "resource versions in metadata", versionChecks},
		{"comparable", "resource versions as integers that only grow (KEP-5504)", comparableChecks},
		{"sweep", "the same for every writable type that discovery shows, and for a custom resource", sweepChecks},
		{"get", "resourceVersion of a get", getChecks},
		{"list", "resourceVersion x resourceVersionMatch x limit x continue of a list, cell by cell (KEP-2523)", listChecks()},
		{"chunking", "lists in chunks", chunkChecks},
		{"watch", "events: from where, which, in which order", watchChecks},
		{"bookmarks", "BOOKMARK events", bookmarkChecks},
		{"streaming", "streaming lists", streamingChecks},
		{"unavailable", "versions that are gone (410) or not there yet (504)", unavailableChecks},
		{"tables", "answers as Tables", tableChecks},
		{"representations", "JSON, YAML, protobuf, and what is not acceptable", representationChecks},
		{"deletion", "deletion in two phases, and of collections", deletionChecks},
		{"validation", "unknown and duplicate fields, and types of fields", validationChecks},
		{"dryrun", "requests that change nothing", dryRunChecks},
		{"apply", "server-side apply and managed fields", applyChecks},
		{"consistency", "many writers, watchers and lists at once", consistencyChecks},
		{"window", "what leaves the history window; wants to know how long that is", windowChecks},
		{"restart", "what a restart may not lose; wants a command that restarts the server", restartChecks},
	}
}

// Area is the name of a group of checks, and what it is about.
type Area struct{ Name, About string }

// Areas lists the groups.
func Areas() []Area {
	var all []Area
	for _, a := range areas() {
		all = append(all, Area{a.name, a.about})
	}
	return all
}

// Checks lists all checks, in the order in which they are reported.
func Checks() []Check {
	var all []Check
	for _, a := range areas() {
		all = append(all, a.checks...)
	}
	return all
}

// selected returns the checks that are chosen by area and by id.
func (o Options) selected() []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool {
		return len(o.Areas) > 0 && !slices.Contains(o.Areas, c.Area()) ||
			len(o.Checks) > 0 && !slices.Contains(o.Checks, c.ID)
	})
}

// checkNames refuses areas and checks that are not there.
func (o Options) checkNames() []error {
	var errs []error
	for _, name := range o.Areas {
		if !slices.ContainsFunc(areas(), func(a area) bool { return a.name == name }) {
			var names []string
			for _, a := range areas() {
				names = append(names, a.name)
			}
			errs = append(errs, fmt.Errorf("there is no area %q: want some of %s", name, strings.Join(names, ", ")))
		}
	}
	for _, id := range o.Checks {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return c.ID == id }) {
			errs = append(errs, fmt.Errorf("there is no check %q: \"tidemark conformance list\" shows them", id))
		}
	}
	if len(errs) == 0 && len(o.selected()) == 0 {
		errs = append(errs, fmt.Errorf("no check is both in the areas %s and among %s", strings.Join(o.Areas, ", "), strings.Join(o.Checks, ", ")))
	}
	return errs
}
