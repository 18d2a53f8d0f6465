package freeport_test

import (
	"net"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/freeport"
)

// TestAddress: programs can listen on the addresses, and no two are the same.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		address := freeport.Address(t)
		if seen[address] {
			t.Errorf("%s was found twice", address)
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
