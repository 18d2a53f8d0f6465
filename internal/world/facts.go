package world

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/peers"
	"github.com/tidemark-dev/tidemark/internal/satoken"
)

// newIdentity returns the name of this process among the servers that share a storage.
func newIdentity() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "server"
	}
	var random [4]byte
	rand.Read(random[:])
	name := strings.Map(func(c rune) rune { // the name of an object ends with it
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, host)
	return strings.Trim(name[:min(len(name), 63)], "-") + "-" + hex.EncodeToString(random[:])
}

// facts are the settings that servers with one storage must have in common, and a follower with the
// server that it follows.
func (p *process) facts() ([]peers.Fact, error) {
	signs, verify, err := p.keys.KeyIDs()
	if err != nil {
		return nil, fmt.Errorf("the keys of service account tokens: %w", err)
	}
	c := &p.Services
	ranges := c.Ranges
	if len(ranges) == 0 {
		ranges = []netip.Prefix{addresses.DefaultRange}
	}
	issuers := p.Authentication.Tokens.Issuers
	const copied = "give all servers the same files: copy the folder pki of the data directory of one to the others before they start, with tidemark pki copy"
	var all []peers.Fact
	if p.keepsAuthority() {
		authority, err := keyPrint(p.authority.CertificatePEM())
		if err != nil {
			return nil, err
		}
		all = append(all, peers.Fact{Name: "certificate-authority", Value: authority, What: "another certificate authority", Remedy: copied})
	}
	return append(all, []peers.Fact{
		{Name: "service-account-keys", Value: signs + " " + strings.Join(verify, ","), What: "other keys of service account tokens",
			Agree:  func(theirs string) bool { return knows(theirs, signs) && slices.Contains(verify, signer(theirs)) },
			Show:   signer,
			Remedy: copied + ", or use the same --service-account-signing-key-file and --service-account-key-file"},
		{Name: "service-account-issuer", Value: append(slices.Clone(issuers), satoken.DefaultIssuer)[0],
			What: "another issuer of service account tokens", Remedy: "use the same --service-account-issuer"},
		{Name: peers.ClusterIPRange, Value: fmt.Sprint(ranges), What: "another range of cluster IPs", Remedy: "use the same --service-cluster-ip-range"},
		{Name: peers.NodePortRange, Value: cmp.Or(c.Ports, addresses.DefaultPorts).String(), What: "another range of node ports",
			Remedy: "use the same --service-node-port-range"},
	}...), nil
}

// signer returns the key that signs from the value of the fact service-account-keys, and knows reports
// whether a key is among those that verify.
func signer(value string) string { signs, _, _ := strings.Cut(value, " "); return signs }

func knows(value, id string) bool {
	_, verify, _ := strings.Cut(value, " ")
	return slices.Contains(strings.Split(verify, ","), id)
}

// keyPrint returns a fingerprint of the public key of a certificate, which its renewals share.
func keyPrint(certificate []byte) (string, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return "", errors.New("the certificate of the authority is not PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:16]), nil
}
