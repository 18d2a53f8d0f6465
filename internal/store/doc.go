// Package store holds the versioned state of an API server: every collection
// of objects, at every revision of the retention window.
//
// It handles keys, bytes and revisions. It knows nothing of Kubernetes kinds or of JSON,
// and imports no other package of this module but notify, which wakes watchers, and exposition, for its metrics.
//
// # The idea
//
// Every revision is a value. A State is one immutable value that holds a
// revision and the trees of all collections as they are at that revision. A
// commit makes the next State, swaps one atomic pointer, and notifies the watchers.
// Readers load the pointer and need no lock, so a list over all namespaces, a bookmark of a
// quiet kind and a count always show one revision.
//
// A published State is never changed, and no other State gets its revision, with one exception: an object that could not
// be read, such as an encrypted one without its key, can be read later. The next State then has the same revision,
// and watches of its collection end: see renew.go.
//
// # The order of a write
//
//	check the condition against the newest state (the published one with the
//	  writes that are pending), give the write its revision
//	append the group to the log, sync
//	publish the next State
//	notify cursors
//	acknowledge
//
// Nothing is readable, watchable or acknowledged before it is durable. An error that
// rests on a pending write (a conflict, "exists", "not found") waits until that write is
// durable: an error must not report a write that a power cut can undo.
//
// That is the writer of a store that is its log's only writer: package groupcommit. On a Shared, a log that
// other servers append to as well, the log decides: package sharedwriter.
//
//	check the condition against the published State; a refusal is decided again by a newer one
//	propose the transaction: the log makes it and gives the revision, or refuses it
//	publish whole revisions, those of others too, and notify cursors
//	acknowledge when the revision is published
//
// Both give the changes that the log has to Publisher.Publish (publish.go): State, history, cursors and feeds do not know
// which of them it was. Package stores opens a store with its writer.
//
// # Files
//
// The files use each other one way: each uses those of its own row, and of the rows above it. TestLayers verifies that.
//
//	values      revision, object, packed, unreadable, change, origin, errors, tree, since, state, deque, operation, size
//	contracts   log, shared, txn, backup, forklogs, options, writer; budget, loans
//	parts       collection, history, trees, aging, waiters, measured, oldreads
//	the store   store, position
//	reading     feed, cursor, exact, instant, recall, replica, decide, memory, metrics
//	writing     quota, draft, publish, publisher, apply, loader, renew
//	the rest    fork, close, check, stats
//
// # Words
//
// A collection is a group-resource ("configmaps", "deployments.apps"). A key is
// the name of an object in its collection: "namespace/name", or "name" for a
// cluster-scoped kind. Keys are ordered by their bytes.
package store
