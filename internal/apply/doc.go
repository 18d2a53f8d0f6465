// Package apply maintains metadata.managedFields, and merges applied configurations
// (server-side apply). Objects, managed fields and patches are JSON bytes.
//
// A Schema describes one kind at one version: which values are lists, sets, maps, or single
// values. Update follows a create, an update or a patch, and sets who owns which field.
// Apply merges a configuration into the live object, for the fields that its manager owns,
// and refuses fields of other owners unless it is forced.
//
// Both have two implementations. The fast path walks the bytes of two objects along with
// the schema once, and writes the difference as the trie that FieldsV1 is. The other one is
// the library structured-merge-diff, whose results are the specification of the fast path.
// It handles the rare cases (entries of other versions, values that do not fit the schema,
// sets that no longer fit it). Tests compare both with the field managers of apimachinery.
//
// The package keeps the types of the embedded schemas, parsed field sets (at most 2 MiB)
// and working memory for the life of the process. All of it depends on the bytes passed in
// and on the program alone, so servers in one process can share it.
package apply
