// Package freeport reserves ports for programs that tests start, and that cannot choose a port and print it.
package freeport

import (
	"fmt"
	"testing"
)

// Find returns a port of 127.0.0.1 that nothing listens on. On Linux, until the test ends, the system gives it to no
// connection, to no listener that lets the system choose, and to no other call of Find, in any process. So programs can
// listen on it, also one after the other.
func Find(t testing.TB) int {
	t.Helper()
	return find(t)
}

// Address returns an address of the loopback interface with a port of [Find].
func Address(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", Find(t))
}
