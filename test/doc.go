// Package test holds the black-box suites: real clients against a running server. It is a
// separate module, so that the dependencies of the clients are not Tidemark's.
package test
