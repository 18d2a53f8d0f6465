package crd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
)

// A definition can name any URL for its webhook, and the server calls it from its own network.
// So the server refuses addresses that only its machine should reach, after it has resolved
// the name. If an answer is not a ConversionReview, errors quote only its apiVersion and kind,
// and at most 1 KiB.

// webhookDialer connects to webhooks. It has no state.
var webhookDialer = net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return checkWebhookAddress(at.Addr())
}}

// checkWebhookAddress returns an error for addresses that are not called. Loopback is allowed,
// because developers run webhooks on the same machine.
func checkWebhookAddress(a netip.Addr) error {
	a = embedded(a.WithZone("").Unmap())
	switch {
	case a.IsLinkLocalUnicast():
		return errors.New("webhooks at link-local addresses are not called")
	case a.IsMulticast(), a == broadcast:
		return errors.New("webhooks at multicast and broadcast addresses are not called")
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return errors.New("webhooks at the unspecified address are not called")
	case metadataAddresses[a]:
		return errors.New("webhooks at addresses of metadata services are not called")
	}
	return nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// metadataAddresses are the addresses outside 169.254.0.0/16 at which clouds give credentials
// to machines.
var metadataAddresses = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true, // AWS
	netip.MustParseAddr("fd20:ce::254"):    true, // Google Cloud
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"):   true, // Azure
	netip.MustParseAddr("192.0.0.192"):     true, // Oracle Cloud
}

// translated has the IPv6 prefixes that embed an IPv4 address, and its offset.
var translated = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
	{netip.MustParsePrefix("::/96"), 12},        // IPv4-compatible
}

// embedded returns the IPv4 address that an IPv6 address embeds, or the address itself.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return a
	}
	for _, t := range translated {
		if b := a.As16(); t.prefix.Contains(a) {
			return netip.AddrFrom4([4]byte(b[t.at : t.at+4]))
		}
	}
	return a
}

// unreached is an error before there is a connection: it quotes nothing of the other side.
type unreached struct{ error }

// withoutAnswer removes the answer from an error of net/http, which quotes it if it is not
// HTTP.
func withoutAnswer(err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) || failed.Timeout() {
		return err
	}
	var (
		op   *net.OpError
		cert *tls.CertificateVerificationError
		dial unreached
	)
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, context.Canceled} {
		if errors.Is(err, known) {
			return err
		}
	}
	if errors.As(err, &op) || errors.As(err, &cert) || errors.As(err, &dial) || strings.HasPrefix(failed.Err.Error(), "tls: ") {
		return err
	}
	return &url.Error{Op: failed.Op, URL: failed.URL, Err: errors.New("the answer is not HTTP")}
}

// unexpectedStatus is the error for a status code that is not a success.
func unexpectedStatus(code int) error {
	return fmt.Errorf("an error on the server (status code %d) has prevented the request from succeeding", code)
}

// brokenOff returns the error for an incomplete answer.
func brokenOff(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.Canceled) {
		return err
	}
	return errors.New("the answer broke off")
}
