// Package test holds the black-box suites: real clients against a running
// server. It is a module of its own, so that their weight reaches nobody who uses
// Tidemark.
package test
