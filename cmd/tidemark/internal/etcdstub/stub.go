// Package etcdstub stands in for etcd where a test harness starts one beside kube-apiserver. It
// stores nothing: Tidemark keeps its objects itself. It responds to the health checks of etcd, and one
// path of its own, by which Check recognizes it.
package etcdstub

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"syscall"
	"time"
)

// Version is the version of etcd that the stub reports. Harnesses choose flags by it.
const Version = "3.6.16"

const (
	// markPath is the path by which Check recognizes a stub. No etcd serves it.
	markPath = "/tidemark/stand-in"
	markBody = `{"standsInFor":"etcd"}`

	headerTimeout = 10 * time.Second
	maxHeader     = 64 << 10 // bytes
	maxBody       = 4 << 10  // bytes of a response that Check reads
)

// ErrUsage wraps mistakes of the command line.
var ErrUsage = errors.New("invalid command line")

// Run runs the stub with the arguments of an etcd until the context ends. It returns an error that
// wraps ErrUsage if the arguments are not etcd's, and another one if a port is taken.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUsage, err)
	case o.version:
		fmt.Fprintf(stdout, "etcd Version: %s\nGit SHA: none: Tidemark stands in for etcd\nGo Version: %s\nGo OS/Arch: %s/%s\n",
			Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	}
	listeners, err := listen(ctx, append(o.clients, o.others...))
	if err != nil {
		return err
	}
	server := http.Server{Handler: handler(), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		fmt.Fprintf(stderr, "stands in for etcd at http://%s\n", l.Addr())
		go func() { failed <- server.Serve(l) }()
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// listen opens all addresses, or none.
func listen(ctx context.Context, all []string) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
		}
	}()
	seen := map[string]bool{}
	for _, text := range all {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || u.Port() == "" {
			return listeners, fmt.Errorf("cannot listen on %q: want a URL such as http://127.0.0.1:2379; the stand-in for etcd serves neither TLS nor unix sockets", text)
		}
		if seen[u.Host] {
			continue
		}
		seen[u.Host] = true
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", u.Host)
		if errors.Is(err, syscall.EADDRINUSE) {
			return listeners, fmt.Errorf("port %s of %s is taken by another process", u.Port(), u.Hostname())
		}
		if err != nil {
			return listeners, fmt.Errorf("cannot listen on %s: %w", text, err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// handler returns the handler of the requests that harnesses send to etcd over HTTP.
func handler() http.Handler {
	mux := http.NewServeMux()
	response := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, body)
		})
	}
	response("/health", `{"health":"true","reason":""}`)
	response("/livez", "ok")
	response("/readyz", "ok")
	response("/version", `{"etcdserver":"`+Version+`","etcdcluster":"3.6.0","storage":"3.6.0"}`)
	response(markPath, markBody)
	return mux
}

// ErrOther means that something other than a stub responds.
var ErrOther = errors.New("not a stand-in for etcd")

// retryEvery is the pause between two attempts of Check to connect.
const retryEvery = 50 * time.Millisecond

// Check returns nil if a stub responds at the base URL. While nothing listens there, it waits until
// the context ends. It returns an error that wraps ErrOther if something else responds.
func Check(ctx context.Context, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("%s: %w: a stub has an http URL", base, ErrOther)
	}
	at := u.JoinPath(markPath).String()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		err := probe(ctx, &client, at)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryEvery):
		}
	}
}

// probe sends one request to the path by which a stub is recognized.
func probe(ctx context.Context, client *http.Client, at string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	var network *net.OpError
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.As(err, &network):
		return err
	default: // the other program does not speak HTTP
		return fmt.Errorf("%w: %w", ErrOther, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return err
	}
	var mark struct{ StandsInFor string }
	if resp.StatusCode != http.StatusOK || json.Unmarshal(body, &mark) != nil || mark.StandsInFor != "etcd" {
		return fmt.Errorf("%w: %s responds with %s", ErrOther, at, resp.Status)
	}
	return nil
}
