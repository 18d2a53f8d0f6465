// Package freeport finds ports for programs that tests start.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// The ports are below those that systems give to connections, which begin with 32768 on Linux by default. So a connection
// cannot take a port before the program listens on it, or while the program starts again.
const first, last = 10_000, 32_767

// found has the ports that the process has found: a program may not listen on one yet.
var found sync.Map

// Find returns a port that nothing listens on. It connects to find out: a listener that it closed could stay open for a
// moment in a child process, which has its parent's descriptors until it executes its program.
func Find(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := first + rand.IntN(last-first+1)
		if _, taken := found.LoadOrStore(port, true); taken {
			continue
		}
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err == nil {
			c.Close()
			continue
		}
		return port
	}
	t.Fatal("no port is free")
	return 0
}

// Address returns an address of the loopback interface with a port that nothing listens on.
func Address(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", Find(t))
}
