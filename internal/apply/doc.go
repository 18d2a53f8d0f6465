// Package apply keeps metadata.managedFields, and merges applied configurations:
// rows G3, G7 and S1 to S7 of the behaviour. It is pure: objects, managed fields
// and patches are JSON bytes, and nothing is kept but schemas and memos of what
// was parsed, which are bounded.
//
// A Schema says of one kind at one version what is a list, a set, a map, and what
// is one value. Update follows a create, an update or a patch: it says who owns
// what now. Apply merges a configuration into the live object, for the fields that
// its manager owns, and refuses what others own unless it is forced.
//
// Both have two ways. The straight one walks the bytes of two objects beside the
// schema once, and writes the difference as the trie that FieldsV1 is. The other
// one is the library (structured-merge-diff), whose results are the measure of the
// first: it is taken for what is rare (entries of other versions, values that do
// not fit the schema, sets that no longer fit it), and tests hold both against the
// field managers of apimachinery.
package apply
