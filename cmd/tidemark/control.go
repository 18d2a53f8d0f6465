package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/serving"
)

// controlServer serves the control API.
type controlServer struct {
	address string // an absolute path, or "http://127.0.0.1:PORT"
	made    string // the directory of the socket, if it was made for it
	server  *http.Server
	done    chan struct{} // closed when it has stopped
}

// startControl serves the control API of a server. It returns nil if that was not requested.
func (f *controlFlags) startControl(s *tidemark.Server) (*controlServer, error) {
	if f.address == "" {
		return nil, nil
	}
	var handler http.Handler = s.Control()
	tcp, err := f.tcp()
	if err != nil {
		return nil, err
	}
	var listener net.Listener
	var address, made string
	if tcp == "" {
		if address, err = filepath.Abs(f.address); err == nil {
			made = missing(filepath.Dir(address))
			listener, err = serving.ListenUnix(address)
		}
	} else {
		var token string
		if token, err = controlToken(f.tokenFile); err != nil {
			return nil, err
		}
		handler = control.RequireToken(token, handler)
		if listener, err = net.Listen("tcp", tcp); err == nil {
			address = "http://" + listener.Addr().String()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the control API cannot listen: %w", err)
	}
	c := &controlServer{
		address: address, made: made,
		server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(c.done)
		c.server.Serve(listener)
	}()
	return c, nil
}

// stop ends all connections. The receiver may be nil.
func (c *controlServer) stop() {
	if c != nil {
		c.server.Close()
		<-c.done
		if c.made != "" {
			os.Remove(c.made) // it stays if it has other files
		}
	}
}

// missing returns a directory that does not exist, otherwise nothing.
func missing(dir string) string {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return dir
	}
	return ""
}

// maxTokenBytes limits the file of the token.
const maxTokenBytes = 4096

// controlToken reads the token of a file, or makes both.
func controlToken(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("--control-token-file: other users can access %s: want mode 0600", path)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var random [32]byte
		rand.Read(random[:])
		token := hex.EncodeToString(random[:])
		return token, writeNew(path, token+"\n")
	}
	token := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return "", fmt.Errorf("--control-token-file: %w", err)
	case len(b) > maxTokenBytes || len(token) < 16:
		return "", fmt.Errorf("--control-token-file: %s has no token of 16 to %d characters; delete it to have one made", path, maxTokenBytes)
	}
	return token, nil
}

// writeNew writes a file that only its owner can read. The file must not exist, also not as a symbolic link.
func writeNew(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// ready is the line of --ready-fd.
type ready struct {
	URL              string `json:"url"`
	Kubeconfig       string `json:"kubeconfig"`
	Control          string `json:"control,omitempty"`
	ControlTokenFile string `json:"controlTokenFile,omitempty"`
	PID              int    `json:"pid"`
	Version          string `json:"version"`
}

// announceReady writes the line to the file descriptor, and closes it unless it is a standard one.
func (f *controlFlags) announceReady(r ready) error {
	if f.readyFD > 2 {
		defer f.readyFile.Close()
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := f.readyFile.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("--ready-fd=%d: %w", f.readyFD, err)
	}
	return nil
}

// untilParentEnds returns a context that ends when the process that started this one has ended.
func untilParentEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		awaitParent(ctx)
	}()
	return ctx
}
