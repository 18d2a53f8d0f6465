package controller_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/pki"
)

const signingRequests = "certificatesigningrequests.certificates.k8s.io"

// asking makes a request r for a certificate.
func (w *world) asking(signer string, usages []string, seconds int, template *x509.CertificateRequest) {
	w.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		w.Fatal(err)
	}
	spec := map[string]any{"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), "signerName": signer, "usages": usages}
	if seconds > 0 {
		spec["expirationSeconds"] = seconds
	}
	text, err := json.Marshal(spec)
	if err != nil {
		w.Fatal(err)
	}
	w.make(signingRequests, "", fmt.Sprintf(`{"metadata":{"name":"r"},"spec":%s}`, text))
}

// decide adds a condition to the request r.
func (w *world) decide(condition certificatesv1.RequestConditionType, subresource string) {
	w.Helper()
	w.change(signingRequests, "r", subresource, func(o metav1.Object) {
		status := &o.(*certificatesv1.CertificateSigningRequest).Status
		status.Conditions = append(status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: condition, Status: corev1.ConditionTrue, Reason: "Test"})
	})
	w.settle()
}

// outcome returns the certificate of the request r, nil for none, and the condition Failed.
func (w *world) outcome() (made *x509.Certificate, failed string) {
	w.Helper()
	var r certificatesv1.CertificateSigningRequest
	if err := json.Unmarshal(w.get(signingRequests, "r").Bytes(), &r); err != nil {
		w.Fatal(err)
	}
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateFailed {
			failed = c.Reason + ": " + c.Message
		}
	}
	if block, rest := pem.Decode(r.Status.Certificate); block != nil {
		var err error
		if made, err = x509.ParseCertificate(block.Bytes); err != nil || len(rest) > 0 {
			w.Fatalf("%v, and %q", err, rest)
		}
	}
	return made, failed
}

// signing returns a world with an authority.
func signing(t *testing.T, enabled ...string) (*world, *pki.Authority) {
	t.Helper()
	authority, err := pki.Open(pki.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, enabled...)
	w.config.Sign = authority.Sign
	w.restart()
	return w, authority
}

const (
	clients        = "kubernetes.io/kube-apiserver-client"
	kubeletClients = "kubernetes.io/kube-apiserver-client-kubelet"
	kubeletServing = "kubernetes.io/kubelet-serving"
)

var (
	forClient  = []string{"client auth", "digital signature", "key encipherment"}
	forServing = []string{"server auth", "digital signature"}
	node       = pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}
)

// TestSigner checks that an approved request gets a certificate with the names and usages of the
// request, and nothing else.
func TestSigner(t *testing.T) {
	uid := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "0"}
	authorityOf := func(cert *x509.Certificate, a *pki.Authority, usage x509.ExtKeyUsage) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	for _, c := range []struct {
		signer  string
		usages  []string
		asked   x509.CertificateRequest
		key     x509.KeyUsage
		usage   x509.ExtKeyUsage
		seconds int
		life    time.Duration // with the five minutes before now
	}{
		{clients, forClient, x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann", Organization: []string{"dev", "ops"}, ExtraNames: []pkix.AttributeTypeAndValue{uid}}},
			x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, x509.ExtKeyUsageClientAuth, 0, 365 * 24 * time.Hour},
		{clients, []string{"client auth"}, x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann"}}, 0, x509.ExtKeyUsageClientAuth, 600, 15 * time.Minute},
		{kubeletClients, forClient[:2], x509.CertificateRequest{Subject: node}, x509.KeyUsageDigitalSignature, x509.ExtKeyUsageClientAuth, 86400, 24 * time.Hour},
		{kubeletServing, forServing, x509.CertificateRequest{Subject: node, DNSNames: []string{"a"}, IPAddresses: []net.IP{{192, 0, 2, 1}}},
			x509.KeyUsageDigitalSignature, x509.ExtKeyUsageServerAuth, 1 << 30, 365 * 24 * time.Hour},
	} {
		w, authority := signing(t, "certificatesigningrequest-signing")
		w.asking(c.signer, c.usages, c.seconds, &c.asked)
		w.settle()
		if made, failed := w.outcome(); made != nil || failed != "" {
			t.Errorf("%s before the approval: %v, %q", c.signer, made, failed)
		}
		before := time.Now()
		w.decide(certificatesv1.CertificateApproved, "approval")
		made, failed := w.outcome()
		if made == nil {
			t.Errorf("%s: no certificate, %q", c.signer, failed)
			continue
		}
		if err := authorityOf(made, authority, c.usage); err != nil {
			t.Errorf("%s: %v", c.signer, err)
		}
		if made.IsCA || !made.BasicConstraintsValid || made.KeyUsage != c.key || len(made.ExtKeyUsage) != 1 {
			t.Errorf("%s: CA %t, usages %v %v", c.signer, made.IsCA, made.KeyUsage, made.ExtKeyUsage)
		}
		if made.Subject.CommonName != c.asked.Subject.CommonName || !slices.Equal(made.Subject.Organization, c.asked.Subject.Organization) ||
			strings.Contains(made.Subject.String(), "57683") || len(made.DNSNames) != len(c.asked.DNSNames) || len(made.IPAddresses) != len(c.asked.IPAddresses) {
			t.Errorf("%s: it is for %v %v %v", c.signer, made.Subject, made.DNSNames, made.IPAddresses)
		}
		if life := made.NotAfter.Sub(made.NotBefore); life != c.life || before.Sub(made.NotBefore) > 5*time.Minute+time.Second {
			t.Errorf("%s: valid for %v from %v, want %v", c.signer, life, made.NotBefore, c.life)
		}
		revision := w.store.Any().Revision()
		w.restart()
		w.settle()
		if w.store.Any().Revision() != revision {
			t.Errorf("%s: a restart wrote", c.signer)
		}
	}
}

// TestSignerRefuses checks that a request that violates the rules of its signer gets the condition
// Failed, and no certificate.
func TestSignerRefuses(t *testing.T) {
	person := pkix.Name{CommonName: "ann"}
	link := &url.URL{Scheme: "https", Host: "a"}
	for _, c := range []struct {
		signer string
		usages []string
		asked  x509.CertificateRequest
		want   string
	}{
		{clients, []string{"client auth", "server auth"}, x509.CertificateRequest{Subject: person}, `"server auth" is not allowed`},
		{clients, []string{"digital signature"}, x509.CertificateRequest{Subject: person}, `"client auth" is missing`},
		{kubeletClients, forClient, x509.CertificateRequest{Subject: person}, "organizations"},
		{kubeletClients, forClient, x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann", Organization: node.Organization}}, "common name"},
		{kubeletClients, forClient, x509.CertificateRequest{Subject: pkix.Name{CommonName: node.CommonName, Organization: []string{"system:nodes", "system:masters"}}}, "system:masters"},
		{kubeletClients, forClient, x509.CertificateRequest{Subject: node, DNSNames: []string{"a"}}, "alternative names are not allowed"},
		{kubeletClients, []string{"client auth"}, x509.CertificateRequest{Subject: node}, `"digital signature" is missing`},
		{kubeletServing, forServing, x509.CertificateRequest{Subject: node}, "DNS name or an IP address is missing"},
		{kubeletServing, forServing, x509.CertificateRequest{Subject: node, DNSNames: []string{"a"}, URIs: []*url.URL{link}}, "URIs are not allowed"},
		{kubeletServing, forClient, x509.CertificateRequest{Subject: node, DNSNames: []string{"a"}}, `"client auth" is not allowed`},
	} {
		w, _ := signing(t, "certificatesigningrequest-signing")
		w.asking(c.signer, c.usages, 0, &c.asked)
		w.decide(certificatesv1.CertificateApproved, "approval")
		made, failed := w.outcome()
		if made != nil || !strings.HasPrefix(failed, "SignerValidationFailure: ") || !strings.Contains(failed, c.want) {
			t.Errorf("%s %q %v: %v, %q, want %q", c.signer, c.usages, c.asked.Subject, made != nil, failed, c.want)
		}
	}
}

// TestSignerLeaves: no certificate is issued for a request that is denied or has failed, nor for another signer, nor
// while the loop is switched off, has no authority, or pauses.
func TestSignerLeaves(t *testing.T) {
	const own = "certificatesigningrequest-signing"
	ask := func(w *world, signer string) {
		w.asking(signer, forClient, 0, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann"}})
	}
	approve := func(w *world) { w.decide(certificatesv1.CertificateApproved, "approval") }
	for name, c := range map[string]struct {
		enabled []string
		run     func(w *world)
	}{
		"denied": {[]string{own}, func(w *world) {
			ask(w, clients)
			w.decide(certificatesv1.CertificateDenied, "approval")
		}},
		"failed": {[]string{own}, func(w *world) {
			ask(w, clients)
			w.decide(certificatesv1.CertificateFailed, "status")
			approve(w)
		}},
		"another signer": {[]string{own}, func(w *world) { ask(w, "example.com/signer"); approve(w) }},
		"off":            {[]string{"*", "-" + own + "-controller"}, func(w *world) { ask(w, clients); approve(w) }},
		"no authority": {[]string{own}, func(w *world) {
			w.config.Sign = nil
			w.restart()
			ask(w, clients)
			approve(w)
		}},
		"kube-controller-manager": {nil, func(w *world) { w.lead(); ask(w, clients); approve(w) }},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := signing(t, c.enabled...)
			c.run(w)
			if made, failed := w.outcome(); made != nil || strings.HasPrefix(failed, "Signer") {
				t.Errorf("a certificate %t, %q", made != nil, failed)
			}
		})
	}
}
