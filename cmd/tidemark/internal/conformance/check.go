package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Level is the requirement level of a check, as in RFC 2119.
type Level string

// The levels. A server passes if no Must fails; Should and May are only reported.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
	May    Level = "MAY"
)

// Check is one requirement of the documents, with the function that checks it.
type Check struct {
	// ID is the area, a dot and a name. In the sweep, the name of the type follows.
	ID string `json:"id"`
	// Level is the requirement level.
	Level Level `json:"level"`
	// Source is the document and the section.
	Source string `json:"source"`
	// About is the requirement, in one sentence.
	About string `json:"about"`
	// Waits describes the events for which the check waits, other than responses; empty if none.
	Waits string `json:"waits,omitempty"`

	run func(p *probe)
}

// Area returns the first part of the ID.
func (c Check) Area() string {
	area, _, _ := strings.Cut(c.ID, ".")
	return area
}

// The documents, as Check.Source names them.
const (
	concepts   = "API Concepts"
	kep2523    = "KEP-2523"
	kep5504    = "KEP-5504"
	conceptsRV = concepts + ", Resource versions"
)

// An area is a group of checks.
type area struct {
	name, about string
	checks      []Check
}

// areas lists all checks in the order of the report. The checks of the sweep run once
// for each type of the server.
func areas() []area {
	return []area{
		{"verbs", "names, URIs and verbs of single objects", verbChecks},
		{"versions", "resource versions in metadata", versionChecks},
		{"comparable", "resource versions as increasing integers (KEP-5504)", comparableChecks},
		{"sweep", "resource versions of every writable type in discovery, and of a custom resource", sweepChecks},
		{"get", "resourceVersion of a get", getChecks},
		{"list", "resourceVersion x resourceVersionMatch x limit x continue of a list, cell by cell (KEP-2523)", listChecks()},
		{"chunking", "lists in chunks", chunkChecks},
		{"sharding", "shards of lists and watches (KEP-5866)", shardingChecks},
		{"watch", "watch events: start, selection and order", watchChecks},
		{"bookmarks", "BOOKMARK events", bookmarkChecks},
		{"streaming", "streaming lists", streamingChecks},
		{"unavailable", "versions that are gone (410) or not there yet (504)", unavailableChecks},
		{"tables", "responses as Tables", tableChecks},
		{"representations", "JSON, YAML, protobuf, and 406 for unsupported media types", representationChecks},
		{"deletion", "graceful deletion, finalizers, and deletion of collections", deletionChecks},
		{"validation", "unknown and duplicate fields, and types of fields", validationChecks},
		{"dryrun", "dry-run requests", dryRunChecks},
		{"apply", "server-side apply and managed fields", applyChecks},
		{"consistency", "concurrent writers, watchers and lists", consistencyChecks},
		{"window", "versions that leave the history window; needs --window", windowChecks},
		{"restart", "what must survive a restart; needs --restart-command", restartChecks},
	}
}

// Area is the name and the description of a group of checks.
type Area struct{ Name, About string }

// Areas returns the groups of checks.
func Areas() []Area {
	var all []Area
	for _, a := range areas() {
		all = append(all, Area{a.name, a.about})
	}
	return all
}

// Checks returns all checks in the order of the report.
func Checks() []Check {
	var all []Check
	for _, a := range areas() {
		all = append(all, a.checks...)
	}
	return all
}

// selected returns the checks that the options select.
func (o Options) selected() []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool {
		return len(o.Areas) > 0 && !slices.Contains(o.Areas, c.Area()) ||
			len(o.Checks) > 0 && !slices.Contains(o.Checks, c.ID)
	})
}

// checkNames returns errors for unknown areas and checks.
func (o Options) checkNames() []error {
	var errs []error
	for _, name := range o.Areas {
		if !slices.ContainsFunc(areas(), func(a area) bool { return a.name == name }) {
			var names []string
			for _, a := range areas() {
				names = append(names, a.name)
			}
			errs = append(errs, fmt.Errorf("unknown area %q: want one or more of %s", name, strings.Join(names, ", ")))
		}
	}
	for _, id := range o.Checks {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return c.ID == id }) {
			errs = append(errs, fmt.Errorf("unknown check %q: run \"tidemark conformance list\"", id))
		}
	}
	if len(errs) == 0 && len(o.selected()) == 0 {
		errs = append(errs, fmt.Errorf("no check is both in the areas %s and among %s", strings.Join(o.Areas, ", "), strings.Join(o.Checks, ", ")))
	}
	return errs
}
