// Package etcdvalue translates between the objects of the store and the keys and values that
// kube-apiserver v1.37 keeps in etcd, so that both can work with the same data.
//
// # The layers of a value
//
//	the store's JSON   {"kind":"Secret","apiVersion":"v1","metadata":{... "resourceVersion":"7" ...
//	encoded            k8s\0 and protobuf without the resource version; JSON for some collections
//	encrypted          k8s:enc:aesgcm:v1:key1:..., where an EncryptionConfiguration says so
//
// A Codec has both directions of all layers: Encode and Decode for the first two, Encrypt and Open
// for all three. Keys translates between objects and the keys of etcd.
//
// # Invariants
//
//	Decode and then Encode of a current value that kube-apiserver wrote returns the same bytes.
//	  Otherwise a no-op update of one server would be a write for the other.
//	Decode returns what a GET of kube-apiserver shows, also for objects that lack fields that
//	  have defaults by now.
//	Decode reports a value as outdated if Encode would choose another version or another form,
//	  so that a no-op update rewrites it. Storage migrations rely on it.
//	Unknown fields of protobuf are dropped, as kube-apiserver drops them.
//	An encrypted value is bound to its whole key in etcd.
//
// The golden files of the tests were recorded from kube-apiserver and etcd; docs/formats/etcd.md
// has the format.
package etcdvalue
