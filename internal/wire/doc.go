// Package wire knows representations: how an object looks as JSON, YAML,
// protobuf and CBOR, what a client may ask for in Accept, how lists and watches are framed
// and compressed. It knows no verbs and no HTTP handlers.
package wire
