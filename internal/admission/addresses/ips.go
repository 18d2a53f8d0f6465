package addresses

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Errors about addresses that cannot be allocated.
var (
	errFull    = errors.New("range is full")
	errOutside = errors.New("the provided network does not match the current range")
	errTaken   = errors.New("provided IP is already allocated")
)

// maxOffset limits how much of a large range is used: there are never so many
// Services.
const maxOffset = 1 << 62

// ipRange is the usable addresses of a prefix: those at the offsets 1 to last. A prefix of a
// single address has none.
type ipRange struct {
	prefix netip.Prefix
	last   uint64
}

func newRange(p netip.Prefix) *ipRange {
	r := &ipRange{prefix: p, last: maxOffset}
	if bits := p.Addr().BitLen() - p.Bits(); bits < 62 {
		r.last = 1<<bits - 1
	}
	if p.Addr().Is4() && r.last > 0 {
		r.last-- // the last one is the broadcast address
	}
	return r
}

// at returns the address at an offset in the prefix.
func (r *ipRange) at(offset uint64) netip.Addr {
	if r.prefix.Addr().Is4() {
		b := r.prefix.Addr().As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(offset))
		return netip.AddrFrom4(b)
	}
	b := r.prefix.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+offset) // no carry: the prefix is masked
	return netip.AddrFrom16(b)
}

// offset is the reverse of at; false: the address is not usable.
func (r *ipRange) offset(ip netip.Addr) (uint64, bool) {
	if !r.prefix.Contains(ip) {
		return 0, false
	}
	var n uint64
	if ip.Is4() {
		a, b := ip.As4(), r.prefix.Addr().As4()
		n = uint64(binary.BigEndian.Uint32(a[:]) - binary.BigEndian.Uint32(b[:]))
	} else {
		a, b := ip.As16(), r.prefix.Addr().As16()
		n = binary.BigEndian.Uint64(a[8:]) - binary.BigEndian.Uint64(b[8:])
	}
	return n, n >= 1 && n <= r.last
}

// reservedBand returns how many addresses at the beginning of a range are reserved for Services
// that name their address, while others are free: a sixteenth, at least 16 and at most 256.
func reservedBand(size uint64) uint64 {
	if size < 32 {
		return 0
	}
	return min(max(size/16, 16), 256)
}

// nextIP chooses a random address of a family, in the first range with a free one.
func (c *choice) nextIP(f corev1.IPFamily) (netip.Addr, error) {
	for _, in := range c.rangesOf(f) {
		if ip, ok := c.chooseIP(in); ok {
			c.ips = append(c.ips, ip)
			return ip, nil
		}
	}
	return netip.Addr{}, errFull
}

func (c *choice) chooseIP(in *ipRange) (netip.Addr, bool) {
	band := reservedBand(in.last)
	free := func(offset uint64) bool { return !c.hasIP(in.at(offset)) }
	offset, ok := c.search(band+1, in.last, free)
	if !ok {
		offset, ok = c.search(1, band, free)
	}
	return in.at(offset), ok
}

// search returns a free number between from and to. It starts at a random one and tries each
// once.
func (a *Allocator) search(from, to uint64, free func(uint64) bool) (uint64, bool) {
	if to < from {
		return 0, false
	}
	n := from + a.uint64()%(to-from+1)
	for at := n; ; {
		if free(at) {
			return at, true
		}
		if at++; at > to {
			at = from
		}
		if at == n {
			return 0, false
		}
	}
}

// uint64 returns a random number.
func (a *Allocator) uint64() uint64 {
	if a.random == nil {
		return rand.Uint64()
	}
	var b [8]byte
	a.random(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// takeIP takes the address that a Service names.
func (c *choice) takeIP(f corev1.IPFamily, text string) error {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return errOutside // it was validated already
	}
	gives := func(in *ipRange) bool { _, ok := in.offset(ip); return ok }
	switch {
	case !gives(c.ranges[f]) && !slices.ContainsFunc(c.rangesOf(f), gives):
		return errOutside
	case c.hasIP(ip):
		return errTaken
	}
	c.ips = append(c.ips, ip)
	return nil
}

func (c *choice) hasIP(ip netip.Addr) bool {
	for _, mine := range c.ips {
		if mine == ip {
			return true
		}
	}
	return c.used.ips[ip] > 0 || c.store.Any().Get(ipAddresses, ip.String()) != nil
}

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Unmap().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func other(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
