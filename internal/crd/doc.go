// Package crd makes resource types of stored CustomResourceDefinitions, and the catalog that serves
// them. Other packages need not know whether a kind is custom.
//
// # Memory
//
// The store holds definitions compressed. This package decodes the parts that routing, discovery
// and the verbs need. Of a schema it keeps only the offsets in the stored bytes. The first write of
// an object compiles the schema of its version for pruning, defaulting, validation and CEL; a rule
// is compiled with only the members that it names. Compiled schemas are evicted when many others
// have been used since, and earlier if they were needed only once. A definition has no goroutine
// and no timer.
//
// Definitions, compiled schemas and webhook clients belong to a Set. A fork of a server shares the
// catalog and the compiled schemas (Set.Fork); servers that are not forks share none of them. The
// package variables are constants, or pools of scratch memory.
//
// # When a definition takes effect
//
// The catalog is a function of the state of the store: Set.Catalog returns that of the newest
// state, so a definition is served from the revision that stores it. A change costs as much as the
// definitions of its group, however many other groups there are. The status of a definition (which
// names are accepted) is decided before it is stored, and becomes a second revision in the same
// transaction: see Naming.
package crd
