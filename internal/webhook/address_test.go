package webhook

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1": "", "::1": "", "::ffff:127.0.0.1": "", "10.96.0.10": "", "192.168.1.1": "", "203.0.113.9": "",
		"fd00::1": "", "2001:db8::1": "", "64:ff9b::cb00:7109": "", "64:ff9b:1::cb00:7109": "", "64:ff9b:1:cb00:71:900::": "",

		"169.254.169.254": "link-local", "169.254.0.1": "link-local", "::ffff:169.254.169.254": "link-local",
		"fe80::1": "link-local", "fe80::1%lo": "link-local",
		"64:ff9b:1:a9fe:a9:fe00::": "local NAT64", "64:ff9b:1:a9:fe:a9fe::": "local NAT64", "64:ff9b:1:0:a9:fea9:fe00::": "local NAT64",
		"64:ff9b:1::a9fe:a9fe": "local NAT64", "64:ff9b:1:7:8:9:6464:64c8": "local NAT64", "64:ff9b:1:a83f:81:1000:1:2": "local NAT64",
		"64:ff9b::a9fe:a9fe": "link-local", "2002:a9fe:a9fe::1": "link-local", "::169.254.169.254": "link-local",
		"0.0.0.0": "unspecified", "::": "unspecified", "::ffff:0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "64:ff9b::": "unspecified",
		"224.0.0.1": "multicast", "239.1.2.3": "multicast", "ff02::1": "multicast", "ff05::2": "multicast", "255.255.255.255": "broadcast",
		"fd00:ec2::254": "metadata", "fd20:ce::254": "metadata", "100.100.100.200": "metadata", "168.63.129.16": "metadata", "192.0.0.192": "metadata",
	} {
		err := checkAddress("webhooks", netip.MustParseAddr(address))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// TestName checks that a name is rejected for the address that it resolves to.
func TestName(t *testing.T) {
	resolving := dialer
	resolving.Resolver = resolver(t, [4]byte{169, 254, 169, 254})
	c, err := resolving.DialContext(t.Context(), "tcp4", "webhook.example.com:443")
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("a name of a link-local address: %v", err)
	}
}

// resolver resolves every name to an address.
func resolver(t *testing.T, address [4]byte) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { server.Close(); <-done })
	go func() {
		defer close(done)
		for b := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: address},
				}}
			}
			if response, err := m.Pack(); err == nil {
				server.WriteTo(response, from)
			}
		}
	}()
	var d net.Dialer
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}
