package netaddr_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/netaddr"
)

func TestEmbedded(t *testing.T) {
	for text, want := range map[string]string{
		"64:ff9b::169.254.169.254": "169.254.169.254", // NAT64
		"2002:a9fe:a9fe::1":        "169.254.169.254", // 6to4
		"::127.0.0.1":              "127.0.0.1",
		"::1":                      "::1",
		"::":                       "::",
		"2001:db8::1":              "2001:db8::1",
		"10.0.0.1":                 "10.0.0.1",
	} {
		if got := netaddr.Embedded(netip.MustParseAddr(text)); got != netip.MustParseAddr(want) {
			t.Errorf("%s embeds %s, want %s", text, got, want)
		}
	}
}

// TestLocal: the address may have been made with a prefix of any length. The examples are made as in RFC 6052, 2.4.
func TestLocal(t *testing.T) {
	want := netip.MustParseAddr("169.254.169.254")
	for _, text := range []string{"64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00:0", "64:ff9b:1::169.254.169.254"} {
		if all := netaddr.Local(netip.MustParseAddr(text)); !slices.Contains(all, want) {
			t.Errorf("%s leads to %v, which lacks %s", text, all, want)
		}
	}
	if all := netaddr.Local(netip.MustParseAddr("64:ff9b::1")); all != nil {
		t.Errorf("an address outside the prefix leads to %v", all)
	}
}

func TestMetadata(t *testing.T) {
	for text, want := range map[string]bool{"fd00:ec2::254": true, "100.100.100.200": true, "10.0.0.1": false} {
		if got := netaddr.Metadata(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
