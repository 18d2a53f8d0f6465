package upgrade_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// TestLimit checks that connections count until they are closed, and those that fail do not.
func TestLimit(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	l := &upgrade.Limit{Most: 2}
	dial := l.Dial(func(_ context.Context, _, address string) (net.Conn, error) {
		if address == "down" {
			return nil, down
		}
		a, _ := net.Pipe()
		return a, nil
	})
	open := func(address string, want error) net.Conn {
		t.Helper()
		c, err := dial(t.Context(), "tcp", address)
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
		return c
	}
	for range 3 {
		open("down", down)
	}
	first := open("up", nil)
	idle := open("up", nil)
	open("up", upgrade.ErrFull)
	first.Close()
	first.Close() // counts once
	open("up", nil)
	open("up", upgrade.ErrFull)
	l.Relieve = func() { idle.Close() }
	open("up", nil)
	open("up", upgrade.ErrFull)
	dial = new(upgrade.Limit).Dial(func(context.Context, string, string) (net.Conn, error) { a, _ := net.Pipe(); return a, nil })
	for range 10 {
		open("up", nil)
	}
}
