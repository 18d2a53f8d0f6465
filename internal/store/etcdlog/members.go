package etcdlog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// members are the members of the cluster that the configuration names.
type members struct {
	addresses []resolver.Address
	options   []grpc.DialOption
	next      atomic.Uint32 // the member of the next watch
}

const (
	// pingAfter is the idle time after which a connection is checked, and pingTimeout how long the
	// response may take. etcd closes a connection with more than one ping in five seconds, and one with
	// pings while no request is under way.
	pingAfter   = 6 * time.Second
	pingTimeout = 4 * time.Second
	// dialTimeout is how long one try of a connection may take.
	dialTimeout = 3 * time.Second
	// mostMessage limits a response, in bytes. Pages are far smaller, unless single values are large.
	mostMessage = 1 << 30
	// streamWindow is how much of one response or watch a member sends before it is read, in bytes. connWindow is
	// the same for a connection. Both are above the bandwidth-delay product of a network within one data center.
	streamWindow, connWindow = 4 << 20, 16 << 20
)

func newMembers(o *Options) (*members, error) {
	if len(o.Servers) == 0 {
		return nil, errors.New("etcd: no servers are given")
	}
	m := new(members)
	schemes := map[string]bool{}
	for _, server := range o.Servers {
		if strings.Contains(server, "@") { // do not show it: it may have a password
			return nil, errors.New("etcd: a URL of a member has a user: leave it out, etcd takes the name of a user from the client certificate")
		}
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("etcd: %q is not the URL of a member: want http://host:port or https://host:port", server)
		}
		if u.Port() == "" {
			return nil, fmt.Errorf("etcd: %q has no port: members usually listen on 2379", server)
		}
		schemes[u.Scheme] = true
		m.addresses = append(m.addresses, resolver.Address{Addr: u.Host, ServerName: u.Hostname()})
	}
	if len(schemes) > 1 {
		return nil, errors.New("etcd: some servers have http and some https: want one of them")
	}
	if !schemes["https"] && (o.CAFile != "" || o.CertFile != "" || o.KeyFile != "") {
		return nil, errors.New("etcd: the files of TLS have no effect on servers with http: want https, or no files")
	}
	transport := insecure.NewCredentials()
	if schemes["https"] {
		config, err := o.tls()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	m.options = []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostMessage)),
		// With windows of a given size, gRPC measures no bandwidth: it would send a PING with almost each response.
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	}
	return m, nil
}

// tls returns the configuration of connections.
func (o *Options) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("etcd: the certificate authority: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd: %s has no certificate", o.CAFile)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("etcd: a client certificate needs its file and that of its key")
	}
	if o.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("etcd: the client certificate: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}

// dialAll returns a connection that sends each request to the next connected member.
func (m *members) dialAll() (*grpc.ClientConn, error) { return m.dial(m.addresses) }

// dialNext returns a connection to one member: to another one with each call.
func (m *members) dialNext() (*grpc.ClientConn, error) {
	i := int(m.next.Add(1)-1) % len(m.addresses)
	return m.dial(m.addresses[i : i+1])
}

func (m *members) dial(addresses []resolver.Address) (*grpc.ClientConn, error) {
	r := manual.NewBuilderWithScheme("etcd")
	r.InitialState(resolver.State{Addresses: addresses})
	conn, err := grpc.NewClient("etcd:///"+addresses[0].Addr, append([]grpc.DialOption{grpc.WithResolvers(r)}, m.options...)...)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	conn.Connect()
	return conn, nil
}

// pause waits before another try, the longer the more tries there were. It returns false when the
// context has ended.
func pause(ctx context.Context, tries int) bool {
	wait := min(20*time.Millisecond<<min(tries, 5), 500*time.Millisecond)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
