// Package wire implements the representations: objects as JSON, YAML, protobuf and CBOR,
// content negotiation, and the framing of lists and watches. It has no verbs and no HTTP
// handlers.
//
// The package keeps what it derives from Go types (the plans of messages, the members that
// may be empty, the weights of fields) for the life of the process. These values depend on
// the program's types alone, and their number is bounded by the number of types: so servers
// in one process can share them. Custom resources have no Go types, and none of these.
package wire
