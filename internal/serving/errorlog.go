package serving

import (
	"bytes"
	"context"
	"log/slog"
)

// errorLog logs the lines of http.Server.ErrorLog. Most are about clients that closed their
// connection, so they are debug messages.
type errorLog struct {
	log             *slog.Logger
	handshakeFailed func()
}

var (
	handshake = []byte("http: TLS handshake error")
	accept    = []byte("http: Accept error")
	panicked  = []byte("http: panic serving")
)

// Write implements io.Writer for a log.Logger without prefix and flags.
func (l *errorLog) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	switch {
	case bytes.HasPrefix(line, handshake):
		if l.handshakeFailed != nil {
			l.handshakeFailed()
		}
	case bytes.HasPrefix(line, accept): // no file descriptors left, mostly
		level = slog.LevelWarn
	case bytes.HasPrefix(line, panicked):
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
