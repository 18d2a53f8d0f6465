package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// fault is a fault of a server, the check that must find it, and the check's message.
type fault struct {
	name, check, says string
	step              func() step // made anew for each run: steps have a memory
}

// Requests that faults are about.
var (
	gets, lists, watches = on("get"), on("list"), on("watch")
	creates, updates     = on("create"), on("update")
	reads                = on("get list")
	chunked              = lists.and(having("limit"))
	continuedLists       = lists.and(having("continue"))
	dry                  = when(having("dryRun"))
	streams              = watches.and(having("sendInitialEvents"))
	others               = when(func(req *http.Request) bool { return !strings.Contains(req.URL.Path, "/namespaces") })
)

// faults are all ways to be broken. No check is without one that trips it.
var faults = append(cellFaults(), []fault{
	{"another kind than discovery says", "verbs.single", "as discovery says", func() step { return field(gets, "Other", "kind") }},
	{"the collection of all namespaces lacks an object", "verbs.collections", "is missing", func() step { return dropItem(lists.and(others)) }},
	{"collections are of kind List", "verbs.kind", "List of", func() step { return field(lists, "List", "kind") }},
	{"a second object of a name", "verbs.unique", "want 409", func() step { return code(creates, 409, 201) }},
	{"uids are used again", "verbs.reuse", "the uid", func() step { return field(on("create get"), "the-same", "metadata", "uid") }},
	{"generated names are always the same", "verbs.generate-name", "want one of its own", func() step {
		return got(creates, func(o object) { set(o, o.text("metadata", "generateName")+"x", "metadata", "name") })
	}},
	{"an update makes a new object", "verbs.update", "became", func() step { return field(gets, "another", "metadata", "uid") }},
	{"the last writer wins", "verbs.conflict", "want 409", lastWriter},
	{"a patch replaces the whole object", "verbs.merge-patch", "does not name", func() step { return field(gets, nil, "metadata", "labels", "keep") }},
	{"a patch is forgotten", "verbs.json-patch", "the patched label", func() step { return field(gets, "1", "metadata", "labels", markLabel) }},

	{"a create returns another version than is stored", "versions.object", "as the create did", func() step { return version(creates, "77") }},
	{"a version is used again", "versions.change", "that it had before", func() step {
		return both(lastWriter(), version(on("create update"), "77"))
	}},
	{"an object's version is the store's revision", "versions.unchanged", "though only another", func() step { return version(gets, "77") }},
	{"items have the version of the list", "versions.list", "the items", func() step {
		return got(lists, func(o object) {
			for _, item := range itemsOf(o) {
				set(item.(map[string]any), o.version(), "metadata", "resourceVersion")
			}
		})
	}},
	{"lists have no version", "versions.list", "no resourceVersion", func() step { return version(lists, "") }},
	{"a write of the same is a change", "versions.no-op", "the version went", func() step {
		return sent(updates, func(o object) { o.label("touched", "yes") })
	}},

	{"opaque versions", "comparable.well-formed", "cannot be compared", opaque},
	{"versions with leading zeros", "comparable.well-formed", "cannot be compared", func() step {
		return got(on("list"), func(o object) { set(o, "0"+o.version(), "metadata", "resourceVersion") })
	}},
	{"versions past 2^128", "comparable.well-formed", "not below 2^128", func() step {
		return got(creates, func(o object) { set(o, o.version()+strings.Repeat("0", 40), "metadata", "resourceVersion") })
	}},
	{"events without a version", "comparable.well-formed", "DELETED", func() step {
		return onType(watches, deleted, edited("", "metadata", "resourceVersion"))
	}},
	{"versions go down", "comparable.grows", "want one past", func() step { return version(updates, "1") }},
	{"an object of a name for each version", "comparable.order", "want one past", func() step { return version(creates, "5") }},
	{"lists of a version that is too small", "comparable.list", "older than", func() step { return version(lists, "1") }},
	{"versions of one type go down", "sweep.types.secrets/v1", "want one past", func() step { return version(updates, "1") }},
	{"deletions have the version of the last state", "sweep.types.leases.coordination.k8s.io/v1", "want one past", lastState},
	{"versions of custom resources go down", "sweep.custom", "want one past", func() step { return version(updates, "1") }},

	{"gets come from a cache that lags", "get.most-recent", "right after the write", func() step { return replay(gets) }},
	{"one connection of two lags", "get.most-recent", "right after the write", func() step { return replay(third(gets)) }},
	{"any state is one that never was", "get.any", "never had another", func() step { return version(gets, "77") }},
	{"a get ignores its version", "get.not-older", "want", func() step { return replay(gets) }},
	{"a get waits for the object's own version", "get.not-older-by-others", "504", func() step {
		return says(gets.and(having("resourceVersion")), 504, `{"kind":"Status","code":504}`)
	}},
	{"a get refuses resourceVersionMatch", "get.match", "400", func() step { return says(gets.and(having("resourceVersionMatch")), 400, `{}`) }},
	{"malformed versions are ignored", "get.malformed", "want a refusal", func() step { return without(on("get list watch"), "resourceVersion") }},
	{"malformed versions are errors of the server", "get.malformed", "want a refusal", func() step { return code(on("get list watch"), 400, 500) }},

	{"unknown matches are ignored", "list.match-unknown", "want a refusal", func() step { return without(lists, "resourceVersionMatch") }},
	{"a list of one name is the most recent", "list.one-name", "want exactly", func() step {
		return without(lists.and(having("fieldSelector")), "resourceVersion", "limit")
	}},
	{"a list with a selector is the most recent", "list.selector", "want exactly", func() step {
		return without(lists.and(having("labelSelector")), "resourceVersion", "resourceVersionMatch")
	}},
	{"the right version, the wrong state", "list.exact.whole.n", "the list at exactly", func() step {
		return liar(lists.and(having("resourceVersion")))
	}},

	{"chunks are larger than the limit", "chunking.limit", "want 2 at most", func() step { return with(chunked, "limit", "5") }},
	{"a chunk lacks an object", "chunking.complete", "is missing", func() step { return dropItem(continuedLists) }},
	{"an object comes in two chunks", "chunking.complete", "again", func() step {
		var last any
		return got(chunked, func(o object) {
			if last != nil {
				o["items"] = append([]any{last}, itemsOf(o)...)
			}
			for _, item := range itemsOf(o) {
				if own(item) {
					last = item
				}
			}
		})
	}},
	{"a list in chunks never ends", "chunking.complete", "again", func() step { return without(chunked, "continue") }},
	{"each chunk has a version of its own", "chunking.constant", "those before of", func() step { return mixed(false) }},
	{"a mixed page: later chunks are of the most recent state", "chunking.snapshot", "all chunks", func() step { return mixed(true) }},
	{"a watch from chunks begins too late", "chunking.watch", "want ADDED", func() step { return nth(watches, 1, drop) }},
	{"one too many remains", "chunking.remaining", "remain", func() step {
		return got(chunked, func(o object) {
			if n, ok := o.at("metadata", "remainingItemCount").(float64); ok {
				set(o, n+1, "metadata", "remainingItemCount")
			}
		})
	}},
	{"a count with a selector", "chunking.remaining-selector", "with a selector", func() step {
		return field(lists.and(having("labelSelector")), 5, "metadata", "remainingItemCount")
	}},
	{"a count of a complete list", "chunking.remaining-last", "remainingItemCount", func() step { return field(lists, 0, "metadata", "remainingItemCount") }},
	{"any token begins anew", "chunking.bad-token", "want a refusal", func() step { return without(lists, "continue") }},

	{"drops an event", "watch.events", "got the event", func() step { return nth(watches, 2, drop) }},
	{"doubles an event", "watch.events", "got the event", func() step { return nth(watches, 2, double) }},
	{"swaps two events", "watch.events", "got the event", func() step { return swap(on("watch"), 2) }},
	{"delays an event until the next one", "watch.list-then-watch", "did not come", func() step { return swap(on("watch"), 3) }},
	{"sends an update as a create", "watch.events", "got the event", func() step { return onType(watches, modified, become(added)) }},
	{"sends an older object", "watch.events", "has the label", func() step {
		return onType(watches, modified, edited("0", "metadata", "labels", markLabel))
	}},
	{"objects of events without their kind", "watch.documents", "want ConfigMap", func() step { return each(watches, edited(nil, "kind")) }},
	{"a watch from a list begins with all objects", "watch.list-then-watch", "got the event ADDED", func() step { return without(watches, "resourceVersion") }},
	{"a watch of one name sends all objects", "watch.get-then-watch", "got the event", func() step { return without(watches, "fieldSelector") }},
	{"a watch from a version begins with all objects", "watch.exact", "got the event ADDED", func() step { return without(watches, "resourceVersion") }},
	{"a watch begins with updates", "watch.unset", "among the synthetic events", func() step { return onType(watches, added, become(modified)) }},
	{"a watch from 0 sends objects twice", "watch.zero", "is there already", func() step { return onType(watches, added, double) }},
	{"a resumed watch repeats the last event", "watch.resume", "got the event", func() step {
		return query(watches.and(having("resourceVersion")), func(q url.Values) { q.Set("resourceVersion", preceding(q.Get("resourceVersion"))) })
	}},
	{"a deletion has the version of the last state", "watch.deleted", "want the version of the deletion", lastState},
	{"a deletion has no last state", "watch.deleted", "want its last state", func() step {
		return onType(watches, deleted, edited(nil, "metadata", "labels"))
	}},
	{"leaving a selector is an update", "watch.selector", "want DELETED", func() step { return onType(watches, deleted, become(modified)) }},
	{"the watch of all namespaces loses the namespace", "watch.namespace", "in the namespace", func() step {
		return onType(watches, modified, edited("elsewhere", "metadata", "namespace"))
	}},
	{"a watch ends with an error", "watch.timeout", "ended with", func() step {
		return events(watches, func() func(*event) []event {
			return func(e *event) []event {
				if e == nil {
					return []event{{failure, object{"kind": "Status", "code": 500}}}
				}
				return []event{*e}
			}
		})
	}},
	{"a watch does not end", "watch.timeout", "did not end", func() step { return without(watches, "timeoutSeconds") }},

	{"bookmarks without a version", "bookmarks.sent", "has no version", func() step {
		return onType(watches, bookmark, edited("", "metadata", "resourceVersion"))
	}},
	{"periodic bookmarks without a version", "bookmarks.periodic", "has no version", func() step {
		return onType(watches, bookmark, edited("", "metadata", "resourceVersion"))
	}},
	{"bookmarks with a whole object", "bookmarks.content", `has "data"`, func() step {
		return onType(watches, bookmark, edited(map[string]any{"a": "b"}, "data"))
	}},
	{"bookmarks of no kind", "bookmarks.content", "as requested", func() step { return onType(watches, bookmark, edited(nil, "kind")) }},
	{"a bookmark before a change that it covers", "bookmarks.complete", "against the list", func() step { return onType(watches, modified, drop) }},
	{"a watch from a bookmark sends updates", "bookmarks.resume", "want ADDED", func() step { return onType(watches, added, become(modified)) }},
	{"bookmarks without allowWatchBookmarks", "bookmarks.unasked", "not asked for", func() step { return with(watches, "allowWatchBookmarks", "true") }},

	{"forgets the end of the initial events", "streaming.state", "did not come", func() step { return onType(streams, bookmark, drop) }},
	{"a streaming list lacks an object", "streaming.state", "is missing", func() step { return nth(streams, 1, drop) }},
	{"a streaming list comes from a cache that lags", "streaming.consistent", "older than", func() step {
		return onType(streams, bookmark, edited("1", "metadata", "resourceVersion"))
	}},
	{"a streaming list is older than asked", "streaming.not-older", "older than", func() step {
		return onType(streams, bookmark, edited("1", "metadata", "resourceVersion"))
	}},
	{"a gap after the bookmark", "streaming.goes-on", "want MODIFIED", func() step { return onType(streams, modified, drop) }},
	{"a streaming list is not the list", "streaming.list", "is missing", func() step { return nth(streams, 3, drop) }},
	{"resourceVersionMatch is taken as given", "streaming.match", "want a refusal", func() step {
		return with(streams, "resourceVersionMatch", "NotOlderThan")
	}},
	{"a streaming list with an unrequested bookmark", "streaming.unasked", "not asked for", func() step {
		return with(streams, "allowWatchBookmarks", "true")
	}},
	{"the bookmark lacks its annotation", "streaming.annotation", "lacks the annotation", func() step {
		return onType(streams, bookmark, edited(nil, "metadata", "annotations"))
	}},

	{"a get responses though its version is not there", "unavailable.future-get", "want 504", func() step { return without(gets, "resourceVersion") }},
	{"a list responses though its version is not there", "unavailable.future-list", "want 504", func() step {
		return without(lists, "resourceVersion", "resourceVersionMatch")
	}},
	{"an exact list responses though its version is not there", "unavailable.future-exact", "want 504", func() step {
		return without(lists, "resourceVersion", "resourceVersionMatch")
	}},
	{"a streaming list at a future version", "unavailable.future-stream", "older than", func() step { return without(streams, "resourceVersion") }},
	{"a watch from a future version begins at once", "unavailable.future-watch", "is of before", func() step { return without(watches, "resourceVersion") }},
	{"a list forgets what it waited for", "unavailable.future-reached", "the list", func() step {
		return replay(lists.and(having("resourceVersion")))
	}},
	{"no word of when to try again", "unavailable.retry-after", "without Retry-After", func() step {
		return responded(reads, func(_ *http.Request, resp *http.Response) { resp.Header.Del("Retry-After") })
	}},
	{"504 with other words", "unavailable.message", "the message is", func() step { return field(lists, "later", "message") }},
	{"410 told as an empty list", "unavailable.gone-list", "want exactly", func() step {
		return says(lists.and(having("resourceVersion")), 200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"99"},"items":[]}`)
	}},
	{"410 told as the most recent list", "unavailable.gone-chunk", "want exactly", func() step { return without(lists, "resourceVersion") }},
	{"a watch of long ago is silent", "unavailable.gone-watch", "the ERROR 410", func() step {
		return both(with(watches, "timeoutSeconds", "1"), each(watches, drop))
	}},
	{"a watch of long ago begins now", "unavailable.gone-watch", "the ERROR 410", func() step {
		return both(without(watches, "resourceVersion"), onType(watches, added, become(modified)))
	}},
	{"410 without a Status", "unavailable.gone-status", "want a Status", func() step { return field(lists, "Error", "kind") }},

	{"rows lack a cell", "tables.list", "cells for", func() step {
		return got(lists, func(o object) {
			rows, _ := o["rows"].([]any)
			for _, row := range rows {
				m := row.(map[string]any)
				m["cells"] = m["cells"].([]any)[1:]
			}
		})
	}},
	{"rows of objects are missing", "tables.list", "has rows for", func() step {
		return got(lists, func(o object) { o["rows"] = []any{} })
	}},
	{"a row comes twice", "tables.get", "want one", func() step {
		return got(gets, func(o object) {
			if rows, _ := o["rows"].([]any); len(rows) > 0 {
				o["rows"] = append(rows, rows[0])
			}
		})
	}},
	{"Tables without a version", "tables.metadata", "is of version", func() step {
		return got(lists, func(o object) {
			if o.text("kind") == "Table" {
				set(o, nil, "metadata", "resourceVersion")
			}
		})
	}},
	{"something else than Table or JSON", "tables.fallback", "want a Table", func() step { return field(lists, "Chair", "kind") }},
	{"columns of another name", "tables.default", "want Name and Created At", func() step {
		return got(lists, func(o object) {
			for _, c := range itemsIn(o, "columnDefinitions") {
				c["name"] = "Column"
			}
		})
	}},

	{"JSON by another name", "representations.json", "the Content-Type is", func() step {
		return responded(gets, func(_ *http.Request, resp *http.Response) { resp.Header.Set("Content-Type", "text/plain") })
	}},
	{"JSON whatever is accepted", "representations.not-acceptable", "want 406", func() step { return header(reads, "Accept", asJSON) }},
	{"any body is JSON", "representations.unsupported", "want 415", func() step { return header(creates, "Content-Type", asJSON) }},
	{"neither protobuf nor JSON", "representations.fallback", "the Content-Type is", func() step {
		return responded(gets, func(_ *http.Request, resp *http.Response) { resp.Header.Set("Content-Type", asYAML) })
	}},
	{"protobuf without its envelope", "representations.protobuf", "begins with", func() step {
		return body(reads, func(b []byte) []byte { return b[min(4, len(b)):] })
	}},
	{"protobuf is read as another object", "representations.protobuf-body", "want the ConfigMap", func() step {
		return field(creates, "other", "metadata", "name")
	}},
	{"JSON instead of YAML", "representations.yaml", "no YAML", func() step { return header(creates, "Accept", asJSON) }},
	{"CBOR without its mark", "representations.cbor", "begins with", func() step {
		return body(reads, func(b []byte) []byte { return b[min(3, len(b)):] })
	}},
	{"a refusal without a code", "representations.status", "want a Status", func() step { return field(gets, nil, "code") }},

	{"a shard that does not say so", "sharding.whole", "is missing", func() step { return field(lists, nil, "metadata", "shardInfo") }},
	{"a shard lacks an object", "sharding.split", "is missing", func() step { return dropItem(lists.and(having("shardSelector"))) }},
	{"the same shard for all", "sharding.split", "shardInfo has the selector", func() step {
		return with(lists.and(having("shardSelector")), "shardSelector", lowHalf.selector())
	}},
	{"a chunk of a shard lacks an object", "sharding.chunks", "is missing", func() step { return dropItem(continuedLists) }},
	{"a watch of a shard is one of all objects", "sharding.watch", "the events of the shard", func() step { return without(watches, "shardSelector") }},

	{"a delete is forgotten", "deletion.removal", "want 404", func() step { return says(on("delete"), 200, `{"kind":"Status"}`) }},
	{"a deletion without a time", "deletion.finalization", "no deletionTimestamp", func() step {
		return field(gets, nil, "metadata", "deletionTimestamp")
	}},
	{"a finalizer comes back", "deletion.last-finalizer", "alone", func() step {
		return field(gets, []any{oneFinalizer, otherFinalizer}, "metadata", "finalizers")
	}},
	{"finalizers have an order", "deletion.any-order", "422", func() step {
		return says(updates.and(func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "-b") }), 422, `{}`)
	}},
	{"finalization is not told", "deletion.events", "want MODIFIED", func() step { return onType(watches, modified, drop) }},
	{"deletecollection deletes all", "deletion.collection", "is missing", func() step {
		return without(on("deletecollection"), "labelSelector")
	}},

	{"wrong types are 422", "validation.type", "want 400", func() step { return code(creates, 400, 422) }},
	{"Ignore warns", "validation.ignore", "there are warnings", func() step {
		return responded(creates, func(_ *http.Request, resp *http.Response) { resp.Header.Add("Warning", `299 - "unknown"`) })
	}},
	{"unknown fields are kept", "validation.ignore", "the unknown field is there", func() step { return field(gets, 1, "bogus") }},
	{"Warn ignores", "validation.warn", "0 warnings", func() step { return with(creates, "fieldValidation", "Ignore") }},
	{"Ignore is the default", "validation.default", "0 warnings", func() step { return with(creates, "fieldValidation", "Ignore") }},
	{"Strict warns", "validation.strict", "want 400", func() step { return with(creates, "fieldValidation", "Warn") }},
	{"Strict names no fields", "validation.strict", "does not tell of", func() step { return field(creates, "no", "message") }},
	{"Strict warns of an update", "validation.strict-update", "want 400", func() step { return with(updates, "fieldValidation", "Warn") }},
	{"Strict warns of a patch", "validation.strict-patch", "want 400", func() step { return with(on("patch"), "fieldValidation", "Warn") }},
	{"unknown levels are ignored", "validation.level", "want a refusal", func() step { return without(creates, "fieldValidation") }},

	{"dry-run creates write", "dryrun.create", "want 404", func() step { return without(dry, "dryRun") }},
	{"dry-run updates write", "dryrun.update", "the object went", func() step { return without(dry, "dryRun") }},
	{"dry-run patches write", "dryrun.patch", "the object went", func() step { return without(dry, "dryRun") }},
	{"dry-run deletes delete", "dryrun.delete", "want 200", func() step { return without(dry, "dryRun") }},
	{"dry-run deletes of collections delete", "dryrun.collection", "want 200", func() step { return without(dry, "dryRun") }},
	{"dry runs have no stages", "dryrun.stages", "want 409", func() step { return code(dry, 409, 201) }},
	{"dry runs send watch events", "dryrun.events", "got the event", func() step { return without(dry, "dryRun") }},
	{"dryRun without a value writes nothing", "dryrun.no-value", "want 200", func() step {
		return says(dry, 201, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`)
	}},
	{"dryRun with any value writes", "dryrun.other-value", "want a refusal", func() step { return without(dry, "dryRun") }},

	{"an apply is not tracked", "apply.create", "has the operations", func() step { return field(gets, nil, "metadata", "managedFields") }},
	{"an update is tracked as an apply", "apply.update-tracked", "want Update", func() step {
		return got(gets, func(o object) {
			for _, m := range itemsIn(object(o.metadata()), "managedFields") {
				m["operation"] = "Apply"
			}
		})
	}},
	{"the last apply wins", "apply.conflict", "want 409", func() step { return with(on("apply"), "force", "true") }},
	{"force is forgotten", "apply.force", "has the value", func() step { return field(gets, "1", "metadata", "labels", markLabel) }},
	{"a field that is no longer applied stays", "apply.remove", "the label mine", func() step { return field(gets, "1", "metadata", "labels", "mine") }},
	{"an apply of the same is a change", "apply.again", "the object went", func() step {
		return sent(from(2, on("apply")), func(o object) { o.label("touched", "yes") })
	}},
	{"an apply without a manager", "apply.manager", "want a refusal", func() step {
		return query(on("apply"), func(q url.Values) { q.Set("fieldManager", "one") })
	}},

	{"loses an event among many", "consistency.complete", "no event came", func() step { return nth(watches, 5, drop) }},
	{"doubles an event among many", "consistency.complete", "no write got a response so", func() step { return nth(watches, 5, double) }},
	{"swaps two events among many", "consistency.order", "came after", func() step { return swap(on("watch"), 3) }},
	{"a watch that goes on misses an event", "consistency.agree", "that reconnects", func() step {
		return nth(from(4, on("watch")), 1, become("CHANGED"))
	}},
	{"a list lacks an object", "consistency.lists", "the list with", func() step { return dropItem(from(2, on("list"))) }},
	{"a list has a version that it has not reached", "consistency.lists", "the list with", func() step {
		return replayItems(lists)
	}},
	{"exact is nearly exact", "consistency.exact", "the list at exactly", func() step { return liar(lists.and(having("resourceVersion"))) }},
	{"a chunk lacks an object among many", "consistency.chunks", "the list in chunks at", func() step { return dropItem(continuedLists) }},
	{"time travel between connections", "consistency.monotonic", "older than", func() step { return replay(third(on("list"))) }},
	{"a connection that goes back in time now and then", "consistency.monotonic", "older than", func() step { return rewind(from(5, on("list"))) }},
}...)

// itemsIn are the objects in an array.
func itemsIn(o object, key string) []map[string]any {
	var all []map[string]any
	array, _ := o[key].([]any)
	for _, x := range array {
		if m, ok := x.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// cellFaults breaks each cell of the table of lists as its meaning can be broken.
// Two lists come before the one that is meant.
func cellFaults() []fault {
	var all []fault
	for _, c := range cells {
		f := fault{check: c.id()}
		third := func(w when) when { return from(3, w) }
		switch c.means {
		case mostRecent:
			f.name, f.says = "a list that is not the most recent", "the most recent list"
			f.step = func() step { return rewind(third(on("list"))) }
		case notOlderThan:
			f.name, f.says = "a list that is older", "older than"
			f.step = func() step { return rewind(third(on("list"))) }
		case anyState:
			f.name, f.says = "a list whose objects are newer", "older than"
			f.step = func() step { return version(third(on("list")), "1") }
		case exactly:
			f.name, f.says = "a list that is newer", "want exactly"
			f.step = func() step { return without(third(on("list")), "resourceVersion", "resourceVersionMatch") }
		case atToken:
			f.name, f.says = "a token that is ignored", "the first one of"
			f.step = func() step { return without(continuedLists, "continue") }
		case invalid:
			f.name, f.says = "ignores resourceVersionMatch", "want a refusal"
			f.step = func() step { return without(on("list"), "resourceVersionMatch") }
		case badRequest:
			f.name, f.says = "ignores a version next to a token", "want 400"
			f.step = func() step { return without(continuedLists, "resourceVersion") }
		}
		f.name += " (" + c.String() + ")"
		all = append(all, f)
	}
	return all
}

// opaque makes versions that are no integers.
func opaque() step {
	hide := func(o object) {
		if v := o.version(); v != "" {
			set(o, "v"+v, "metadata", "resourceVersion")
		}
	}
	return got(on("list get create update"), hide)
}

// lastWriter lets every update win, whatever it is based on.
func lastWriter() step {
	return sent(updates, func(o object) { set(o, nil, "metadata", "resourceVersion") })
}

// lastState makes deletions have the version of the last write.
func lastState() step {
	var mu sync.Mutex
	last := map[string]string{}
	return both(
		got(on("create update"), func(o object) {
			mu.Lock()
			defer mu.Unlock()
			last[o.name()] = o.version()
		}),
		onType(watches, deleted, func(e event) []event {
			mu.Lock()
			defer mu.Unlock()
			return edited(last[e.Object.name()], "metadata", "resourceVersion")(e)
		}))
}

// liar responds to the most recent state under the version that was asked for.
func liar(w when) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !w(req) {
			return next.RoundTrip(req)
		}
		asked := req.URL.Query().Get("resourceVersion")
		return without(always, "resourceVersion", "resourceVersionMatch")(req, through{version(always, asked), next})
	}
}

// replayItems responds to lists with the items of the first list.
func replayItems(w when) step {
	var items any
	return got(w, func(o object) {
		if items == nil {
			items = o["items"]
		}
		o["items"] = items
	})
}

// mixed serves later chunks from the most recent state, as a server does for the token that it sends
// with 410. Hidden reports whether they have the version of the first.
func mixed(hidden bool) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		token := req.URL.Query().Get("continue")
		if token == "" {
			return next.RoundTrip(req)
		}
		return query(always, func(q url.Values) { q.Set("continue", inconsistent(token)) })(req, through{
			got(always, func(o object) {
				if hidden {
					set(o, tokenVersion(token), "metadata", "resourceVersion")
				}
			}), through{keepVersion(token, hidden), next}})
	}
}

// keepVersion leaves the token of the next chunk at the version of the first one.
func keepVersion(token string, hidden bool) step {
	return got(always, func(o object) {
		next := o.text("metadata", "continue")
		if !hidden || next == "" {
			return
		}
		m := decodeToken(next)
		m["rv"] = decodeToken(token)["rv"]
		set(o, encodeToken(m), "metadata", "continue")
	})
}

// Tokens are as kube-apiserver makes them.
func decodeToken(token string) map[string]any {
	b, _ := base64.RawURLEncoding.DecodeString(token)
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	m := map[string]any{}
	d.Decode(&m)
	return m
}

func encodeToken(m map[string]any) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func tokenVersion(token string) string { return fmt.Sprint(decodeToken(token)["rv"]) }

func inconsistent(token string) string {
	m := decodeToken(token)
	m["rv"] = -1
	return encodeToken(m)
}

// preceding is the number before a version.
func preceding(version string) string {
	n, ok := new(big.Int).SetString(version, 10)
	if !ok {
		return version
	}
	return n.Sub(n, big.NewInt(1)).String()
}

// lacking are the checks that Tidemark does not pass, and how they end: parts that
// it does not have yet. docs/conformance.md lists them.
var lacking = map[string]Outcome{}

// assist makes a server send its periodic bookmark soon. The bookmark at the end of a watch
// does as well, and the test need not wait a minute.
func assist() step {
	return query(watches, func(q url.Values) {
		if q.Get("timeoutSeconds") == "300" {
			q.Set("timeoutSeconds", "5")
		}
	})
}

// repairs are for checks that kube-apiserver does not pass, so that it can be seen
// that they pass where the promise is kept: docs/conformance.md has the reasons.
var repairs = map[string]step{
	"get.malformed":           code(on("get watch"), 500, 400),
	"validation.strict-patch": code(on("patch"), 422, 400),
	"dryrun.no-value": query(dry, func(q url.Values) {
		if q.Get("dryRun") == "" {
			q.Del("dryRun")
		}
	}),
	"list.one-name": with(lists.and(having("fieldSelector")).and(having("limit")), "resourceVersionMatch", "Exact"),
}

// peerKubeconfig names a kubeconfig of a kube-apiserver that may be there.
const peerKubeconfig = "TIDEMARK_TEST_PEER_KUBECONFIG"

// serve starts a server in memory, which makes no ConfigMaps of its own.
func serve(t *testing.T) *rest.Config {
	t.Helper()
	s := &tidemark.Server{
		InProcess: true, Controllers: []string{"*", "-root-ca-certificate-publisher"},
		FeatureGates: map[string]bool{"CBORServingAndStorage": true, "ShardedListAndWatch": true},
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.RESTConfig()
}

// patience of the faults: some of them make something not come. It is longer than
// the 3 s that a server waits for a version.
const patience = 12 * time.Second

// one runs the checks with an id, and returns the result of one.
func one(t *testing.T, config *rest.Config, id string, o Options) Result {
	t.Helper()
	o.Checks, o.Seed = []string{id}, testrand.New(t).Uint64()
	if strings.HasPrefix(id, sweepTypes) {
		o.Checks = []string{sweepTypes}
	}
	report, err := Run(t.Context(), config, o, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Results, func(r Result) bool { return r.ID == id })
	if i < 0 {
		t.Fatalf("there is no result for %s", id)
	}
	return report.Results[i]
}

// TestFaults runs all checks against Tidemark, and then each fault against the check
// that is meant for it.
func TestFaults(t *testing.T) {
	var base map[string]Result
	t.Run("passes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { base = baseOf(t, behind(serve(t), assist()), nil) })
	})
	for id, r := range base {
		if r.Area() == "restart" || r.Area() == "window" {
			continue // TestRestart and TestWindow have servers for them
		}
		if want, listed := lacking[id]; !listed && r.Outcome != Passed || listed && r.Outcome != want {
			t.Errorf("%s: %s (want %q, else pass): %s\n%v", id, r.Outcome, want, r.Message, r.Exchanges)
		}
	}
	for id := range lacking {
		if _, ran := base[id]; !ran {
			t.Errorf("%s is said to be lacking, and did not run", id)
		}
	}
	for group := range slices.Chunk(faults, 12) { // on one server, as starting it takes longer than most checks
		t.Run(group[0].check+"/"+group[0].name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				config := behind(serve(t), assist())
				for _, f := range group {
					f.run(t, config, base, nil)
				}
			})
		})
	}
}

// TestFaultsOfPeer does the same with a kube-apiserver, where there is one: so the
// checks of parts that Tidemark does not have are proven too.
func TestFaultsOfPeer(t *testing.T) {
	path := os.Getenv(peerKubeconfig)
	if path == "" {
		t.Skipf("%s names no kubeconfig", peerKubeconfig)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config = behind(config, assist())
	base := baseOf(t, config, repairs)
	for id, r := range base {
		_, repaired := repairs[id]
		switch {
		case r.Outcome == Passed || r.Outcome == Skipped || r.Outcome == Absent && r.Level == May:
		case repaired:
			t.Errorf("%s does not pass where the promise is kept: %s: %s", id, r.Outcome, r.Message)
		default:
			t.Errorf("%s: %s: %s\n%v", id, r.Outcome, r.Message, r.Exchanges)
		}
	}
	for _, f := range faults {
		t.Run(f.check+"/"+f.name, func(t *testing.T) {
			t.Parallel()
			f.run(t, config, base, repairs)
		})
	}
}

// baseOf runs all checks; those with a repair behind it.
func baseOf(t *testing.T, config *rest.Config, repairs map[string]step) map[string]Result {
	t.Helper()
	report, err := Run(t.Context(), config, Options{Timeout: 30 * time.Second, Parallel: 8, Seed: testrand.New(t).Uint64()}, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	base := map[string]Result{}
	for _, r := range report.Results {
		base[r.ID] = r
	}
	for id, repair := range repairs {
		if base[id].Outcome == Passed {
			t.Errorf("%s passes without its repair: take that away", id)
		}
		base[id] = one(t, behind(config, repair), id, Options{})
	}
	return base
}

// run runs the check that is meant to find the fault.
func (f fault) run(t *testing.T, config *rest.Config, base map[string]Result, repairs map[string]step) {
	if r := base[f.check]; r.Outcome != Passed {
		t.Logf("%s, %s: proven where the check passes; here it is %s: %s", f.check, f.name, r.Outcome, r.Message)
		return
	}
	if f.check == "sharding.whole" && base["sharding.split"].Outcome != Passed {
		t.Logf("%s, %s: the server has no shards", f.check, f.name)
		return
	}
	steps := []step{f.step()}
	if repair := repairs[f.check]; repair != nil {
		steps = append(steps, repair)
	}
	r := one(t, behind(config, steps...), f.check, Options{Timeout: patience})
	if r.Outcome == Absent { // a bookmark that a server sends less often
		r = one(t, behind(config, steps...), f.check, Options{})
	}
	if r.Outcome != Failed || !strings.Contains(r.Message, f.says) {
		t.Errorf("%s, %s: %s (want fail, with %q): %s\n%v", f.check, f.name, r.Outcome, f.says, r.Message, r.Exchanges)
	}
}

// TestEveryCheckCanFail: no check is without a fault that trips it.
func TestEveryCheckCanFail(t *testing.T) {
	for _, c := range Checks() {
		found := slices.ContainsFunc(faults, func(f fault) bool { return f.check == c.ID || strings.HasPrefix(f.check, c.ID+".") }) ||
			slices.ContainsFunc(restartFaults, func(f restartFault) bool { return f.check == c.ID }) ||
			slices.ContainsFunc(windowFaults, func(f fault) bool { return f.check == c.ID })
		if !found {
			t.Errorf("%s has no fault that trips it", c.ID)
		}
		if c.Source == "" || c.About == "" || c.Level == "" || c.run == nil {
			t.Errorf("%+v is not complete", c)
		}
	}
	all := append(slices.Clone(faults), windowFaults...)
	for _, f := range restartFaults {
		all = append(all, fault{name: f.name, check: f.check})
	}
	for _, f := range all {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return f.check == c.ID || strings.HasPrefix(f.check, c.ID+".") }) {
			t.Errorf("the fault %q is for the check %s, which there is not", f.name, f.check)
		}
	}
	t.Logf("%d checks, %d faults", len(Checks()), len(all))
}
