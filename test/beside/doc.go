// Package beside runs Tidemark and a kube-apiserver on one etcd, with the same flags, and exchanges one for
// the other under load. Its tests are skipped unless TIDEMARK_TEST_PEER_PROGRAMS names a folder with the
// programs etcd and kube-apiserver.
package beside
