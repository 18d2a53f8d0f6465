// Package sharedwriter is the writer of a store on a Shared, a log that other servers append to as well.
//
// # The writer of a shared log
//
// Other servers append to the log too, so the log decides transactions and gives the revisions. The published state is one
// that the log had, perhaps some milliseconds ago. Three kinds of goroutines work on it:
//
//	one for the store    Follow: [publish] [publish] ...          the changes of all servers, whole revisions
//	each transaction     check, Propose ........ wait until the revision is published: response
//	each recent read     Head .................. wait until the revision is published: read
//
// Invariants:
//
//   - Only changes from Follow are published, in order. A transaction publishes nothing itself.
//   - A transaction is acknowledged after its revision was published here: its client reads it.
//   - A transaction is refused by a state that is not older than the request: the refusal is decided again by a state at the
//     revision that Head, or the log's refusal, has named since the request began.
//   - A read of the most recent state waits for a revision that Head named after the read began.
//
// Example: servers A and B have published revision 7, with a at revision 7. Clients of both update a. The log makes the
// transaction of A at revision 8, and refuses the one of B: its conditions do not hold at 8. B waits until it has published 8,
// checks the transaction by that state, and returns ErrConflict. A responds when it has published 8.
//
//	write    check by the published state; a refusal: Head, wait for it, check again -> error
//	         Propose: made    -> wait for its revision -> response
//	                  refused -> wait for that revision, check -> error, or Propose again
//
// If the log is another one than before, or went back, the state is void and the process has to end. If compaction overtakes
// Follow, the state is loaded again: see reload.go.
package sharedwriter
