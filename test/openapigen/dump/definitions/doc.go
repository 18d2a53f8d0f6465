// Package definitions is empty, but while openapigen runs: then it holds what
// openapi-gen extracted.
package definitions
