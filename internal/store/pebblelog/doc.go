// Package pebblelog is the durable log of a local store: a store.Log on Pebble.
//
// # Keys
//
//	a/ revision                      an actor, as the change of that revision defines it
//	c/ collection / key              the current version of an object
//	h/ collection / key / modified   a version that a later change replaced or deleted
//	r/ revision                      the header of a change: operation, object, previous version;
//	                                 its origin
//	m/ revision                      a mark: the running time at a revision
//	s                                the head: the state of the log, in one record
//
// A change writes its header and its new version, and moves the version that it
// replaced from c/ to h/. So a start reads c/ alone; a collection as of revision
// R is a merge of c/ and h/, both in the order of keys, in which a version is
// visible iff modified <= R < until; and a walk over r/ gives the changes.
//
// # Invariants on the disk
//
//	A group of changes is one Pebble batch and one sync: it is there whole or not
//	  at all, and Append returns after the sync.
//	Each batch rewrites the head. The head holds the revision, the chain value of
//	  the last header, and the number and the sum of all current versions.
//	The chain value of a header is a checksum over the chain value before it, its
//	  revision and its content: a header that is missing, changed or out of place
//	  breaks the chain.
//	The sum adds up the checksums of the versions in c/, each over its place, its
//	  revisions and its bytes: a version that is missing, changed or added breaks
//	  the sum.
//	The file HEAD is a copy of some earlier head that was durable. The head in
//	  Pebble is never behind it.
//
// # Damaged disks
//
// Pebble cuts a write-ahead log off at the first record that does not fit its
// checksum, and cannot always tell a torn write from damage. The package looks
// at the files of the write-ahead log before Pebble does, and refuses a bad
// record that a later one proves to have been synced, and a log that is missing or
// shorter than in HEAD or SYNCED. SYNCED has every acknowledged group, so after kill -9 all
// damage is refused. A power cut may lose the content of SYNCED. HEAD knows of each log before its
// first write is acknowledged, and of a write within Options.HeadInterval. So after a power cut
// only two things can be taken for a torn write: the last group, if it is younger than that, and whole
// groups of that time at the truncated end of a log, except for the first group of the log. In
// Pebble's tables every block has a checksum, and each version and header has its own.
//
// # Files
//
//	pebble/   the Pebble store
//	HEAD      the copy of the head, and how far the write-ahead logs were synced
//	SYNCED    the last two heads that were synced; not synced itself
//	dropped/  write-ahead logs that were set aside, see Options.AcceptDataLoss
//	RESERVE   blocks of the disk set aside for deletions on a full disk
//
// The formats are described in docs/formats/data-directory.md.
package pebblelog
