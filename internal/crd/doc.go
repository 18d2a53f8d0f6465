// Package crd turns the definitions of custom resources that are stored into resource
// types, and the catalog into one that serves them. From there on nothing asks whether
// a kind is custom.
//
// # What is kept of a definition
//
// The store holds definitions compressed. A definition is read as far as routing,
// discovery and the verbs need it. Of its schemas only the place in the stored bytes is
// noted; a version's schema is compiled (pruning, defaults, validation, CEL) when an
// object of it is first written, its rules with what they name of it alone, and let go
// again when many others were used since, sooner if it was needed once. No definition
// has a goroutine, a timer or a cache of its own.
//
// # When it takes effect
//
// The catalog follows from the state of the store: whoever asks for it gets that of the
// newest state, so a definition serves from the revision on that stores it. To follow a
// change costs what its group does, however many others there are. What its status has
// to say (which names are accepted) is found before it is stored, and becomes a second
// revision in the same step: see Naming.
package crd
