package main

import (
	"context"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that is canceled by the first SIGINT or SIGTERM. A second
// signal exits with code. SIGHUP, which a closed terminal sends, is ignored.
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

// notifyReady reports to systemd that the server is ready, if NOTIFY_SOCKET is set.
func notifyReady() {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	c, err := net.Dial("unixgram", address)
	if err != nil {
		return // systemd no longer listens
	}
	defer c.Close()
	c.Write([]byte("READY=1"))
}
