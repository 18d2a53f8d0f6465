// Package encryption encrypts values on their way to the log and decrypts them on their way back,
// as an EncryptionConfiguration of kube-apiserver says and in kube-apiserver's formats.
//
// # Where it sits
//
// Log wraps a store.Log. The store and everything above it have plain bytes, so reads cost
// nothing. The wrapped log and its medium have encrypted ones:
//
//	store      plain     {"kind":"Secret",...}
//	Log        Append: encrypt        Replay, ObjectsAt, Changes: open
//	store.Log  encrypted    k8s:enc:aesgcm:v1:key1:...
//
// A Set is one configuration in effect: for each resource its providers in their order. The first
// one encrypts, all of them decrypt, each by the prefix of the stored value.
//
// # Invariants
//
//	Each current version in the wrapped log can be opened with the Set in effect. A start and
//	  a reload check that, and refuse a configuration that lacks a key.
//	A value is opened for the place where it is stored. Methods that authenticate bind it to the
//	  key of kube-apiserver's storage, /registry/secrets/NAMESPACE/NAME. The revision inside
//	  the value has to be that of the record, with every method.
//	The version that a change replaces is handed to the wrapped log in the form that it has
//	  there: Log reads it back, because a value is never encrypted twice to the same bytes.
//	No error and no log line contains a key, a data key or a plain value.
//
// # KMS
//
// A KMS plugin encrypts a seed, from which a key for each value is derived. Only a new seed and a
// seed that is not cached need the plugin. The group commit calls no plugin: Writable refuses
// a write before it joins a group if the seed has expired, or if the record of the version that
// it replaces is damaged.
package encryption
