// Package groupcommit commits transactions to a log that has no other writer.
//
// # Group commit
//
// The committer knows the newest version of each object, decides the
// conditions of transactions itself, and gives the revisions. Transactions that arrive during a sync of the log share the next
// one.
//
// A transaction is checked against the newest state, which has the transactions that are not published yet, and joins the
// open group. One transaction at a time leads: its goroutine seals the open group, appends it to the log, publishes its
// changes and acknowledges its transactions, while the next group fills. Then it hands the lead to a transaction of that
// group. A transaction that arrives alone leads at once, on its own goroutine: no hand-off, no timer.
//
//	request A   check, join, lead: [seal][append, sync......][publish] ack
//	request B          check, join                      wait  lead: [seal][append...
//	request C              check, join                  wait  ................. ack
//
// Invariants, whenever mu is not held:
//
//   - newest state = published state + group in flight + open group. The objects of the two groups are in pending
//   - revisions: published < in flight < open. Each write has one of its own, in the order of joining
//   - at most one group is in flight. Its leader alone appends and publishes
//   - leading is true while a transaction leads, or was given the lead
//   - nothing is published or acknowledged before the log has it
//
// Example: a is at revision 7 and 7 is published. A transaction updates a and leads, with revision 8 in flight. Meanwhile an
// update of a that names 7 fails: it gets ErrConflict when 8 is published, not before, since a power cut can still undo 8.
// An update that names 8 joins the open group as revision 9.
//
// # Errors of the log
//
// ErrNoSpace: the transactions of the group fail, apart from deletions, which are appended once more on their own, since a log
// may have a reserve for them. Transactions that were checked with a failed one (deletions of this group, the open group) are
// checked again: see rebase. The revisions of failed writes stay unused. Each failed transaction then waits for room, if there
// may be some soon, and joins once more: see room.go. The leader does not wait, so deletions go on meanwhile.
//
// Any other error: the log is unusable. OnFatal is called, and no transaction is acknowledged any more.
package groupcommit
