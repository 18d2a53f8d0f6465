//go:build !linux

package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The ports are below those that systems give to connections.
const first, last = 10_000, 32_767

// found has the ports that the process has found: a program may not listen on one yet.
var found sync.Map

// find connects to find out whether a port is free: a listener that it closed could stay open for a moment in a child
// process, which has its parent's descriptors until it executes its program.
func find(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := first + rand.IntN(last-first+1)
		if _, taken := found.LoadOrStore(port, true); taken {
			continue
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
		if err == nil {
			c.Close()
			continue
		}
		return port
	}
	t.Fatal("no port is free")
	return 0
}
