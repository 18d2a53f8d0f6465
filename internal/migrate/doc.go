// Package migrate moves the objects of a server between a data directory and etcd. Each object keeps its
// resource version.
//
//	ToSnapshot    a log to a snapshot file of etcd, with the history
//	FromEtcd      the objects of etcd to a new log, as of one revision
//	Compare       a log with the objects of etcd
//
// # Verification
//
// A copy is read back and compared with its source: the newest revision, the number of objects, and of each
// version the revisions and the content. etcd has another form of objects, so the content is compared in the
// form that clients get: the same bytes, or JSON with the same meaning. A version that differs is an error,
// and a Report names it.
package migrate
