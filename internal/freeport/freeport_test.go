package freeport_test

import (
	"net"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/freeport"
)

// TestAddress: programs can listen on the addresses again and again, also on all interfaces, and no two are the same.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		address := freeport.Address(t)
		if seen[address] {
			t.Errorf("%s was found twice", address)
		}
		seen[address] = true
		_, port, _ := net.SplitHostPort(address)
		for _, at := range []string{address, address, ":" + port} {
			if c, err := net.Dial("tcp", address); err == nil {
				c.Close()
				t.Errorf("a program listens on %s", address)
			}
			l, err := net.Listen("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			l.Close()
		}
	}
}
