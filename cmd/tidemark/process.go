package main

import (
	"context"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. The
// second one ends the process with an exit code. SIGHUP, which a closed terminal sends, is ignored.
func untilSignal(parent context.Context, code int) (ctx context.Context, stop func()) {
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancel(parent)
	signal.Ignore(syscall.SIGHUP)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		cancel()
		<-signals
		os.Exit(code)
	}()
	return ctx, cancel
}

// notifyReady tells systemd that the server is ready, where it asked for it.
func notifyReady() {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	c, err := net.Dial("unixgram", address)
	if err != nil {
		return // no manager listens any more
	}
	defer c.Close()
	c.Write([]byte("READY=1"))
}
