// Package etcdsnapshot writes and reads snapshot files of etcd, as `etcdctl snapshot save` makes them
// and `etcdutl snapshot restore` takes them.
//
// # Why a file
//
// A running etcd gives the revisions itself, one after the other. A file can have any: so the
// versions of objects keep their revisions when they move to etcd.
//
// # The file
//
// A bbolt database, and behind it the SHA-256 of its bytes:
//
//	bucket  key                          value
//	key     revision(8) _ index(8) [t]   mvccpb.KeyValue; t: a deletion
//	meta    finishedCompactRev           revision(8) _ index(8): history begins there
//	lease   ID(8)                        leasepb.Lease: ID (1), TTL in seconds (2)
//
// All numbers in keys are big-endian. The index counts the changes of one transaction, which have one revision. The newest revision is that of the last key, or the one of the
// compaction if that is later. What else etcd needs, such as the members, the restore adds.
package etcdsnapshot
