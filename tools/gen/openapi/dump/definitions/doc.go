// Package definitions is empty except while tools/gen/openapi runs, when it holds the
// definitions that openapi-gen extracted.
package definitions
