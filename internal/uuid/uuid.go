// Package uuid makes random UUIDs (RFC 9562, version 4).
package uuid

import (
	"crypto/rand"
	"encoding/hex"
)

// New returns an unpredictable UUID. It is safe for concurrent use.
func New() string {
	var b [16]byte
	rand.Read(b[:])
	return From(b)
}

// From returns a UUID of random bytes. It overwrites six of their bits with the version.
func From(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[:], b[:4])
	hex.Encode(s[9:], b[4:6])
	hex.Encode(s[14:], b[6:8])
	hex.Encode(s[19:], b[8:10])
	hex.Encode(s[24:], b[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}
