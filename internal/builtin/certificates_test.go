package builtin_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

var (
	signingKey    = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	signedRequest = func() []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, signingKey)
		if err != nil {
			panic(err)
		}
		return der
	}()
	issuedCertificate = func() []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, signingKey.Public(), signingKey)
		if err != nil {
			panic(err)
		}
		return der
	}()
	signingRequest = "{metadata: {name: r}, spec: {request: " + pemBlock("CERTIFICATE REQUEST", signedRequest) + ", signerName: a.b/c, usages: [client auth]}}"
)

// pemBlock returns a block of PEM as an object has it: in base 64.
func pemBlock(title string, der []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: title, Bytes: der}))
}

// forgedRequest returns a request whose signature is wrong.
func forgedRequest() []byte {
	der := append([]byte(nil), signedRequest...)
	der[len(der)-1] ^= 1
	return der
}

func TestSigningRequest(t *testing.T) {
	testkinds.Rules(t, signingRequest, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "expirationSeconds: 600", ""},
		{"a request is in PEM", "request: eA==", `request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST`},
		{"a request is a request", "request: " + pemBlock("CERTIFICATE", issuedCertificate), `request: Invalid value: "...": PEM block type must be CERTIFICATE REQUEST`},
		{"a request is signed", "request: " + pemBlock("CERTIFICATE REQUEST", forgedRequest()), `request: Invalid value: "...": x509: Ed25519 verification failure`},
		{"a usage is required", "usages: []", "usages: Required value"},
		{"a usage is known", "usages: [any auth]", `usages[0]: Unsupported value: "any auth": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"`},
		{"usages are unique", "usages: [client auth, client auth]", `usages[1]: Duplicate value: "client auth"`},
		{"a signer is required", "signerName: ''", "signerName: Required value"},
		{"a signer is not the legacy one", "signerName: kubernetes.io/legacy-unknown", `signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version`},
		{"a signer has a domain and a path", "signerName: a.b", `signerName: Invalid value: "a.b": must be a fully qualified domain and path of the form 'example.com/signer-name'`},
		{"a signer has one path", "signerName: a.b/c/d", `signerName: Invalid value: "a.b/c/d": must be a fully qualified domain and path of the form 'example.com/signer-name'`},
		{"a signer's domain has two parts", "signerName: a/b", `signerName: Invalid value: "a": should be a domain with at least two segments separated by dots`},
		{"a signer's domain has labels", "signerName: A.b/c", `signerName: Invalid value: "A.b": validating label "A": a lowercase RFC 1123 label must consist of...`},
		{"a signer's path has labels", "signerName: a.b/C", `signerName: Invalid value: "C": validating label "C": a lowercase RFC 1123 subdomain must consist of...`},
		{"a certificate lives for 10 minutes", "expirationSeconds: 599", "expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"},
	}), func(r *certificates.Request) []string { return testkinds.Texts(certificates.ValidateRequest(r)) })
	testkinds.Rules(t, signingRequest, []testkinds.Rule{
		{"create: the user is that of the request", "spec.username: other\nspec.groups: [other]\nspec.extra: {b: [c]}", "spec.extra.a[0]: b\nspec.extra.b[0]: removed\nspec.groups[0]: g\nspec.username: u"},
	}, func(r *certificates.Request) []string {
		return testkinds.Changes(r, func(r *certificates.Request) {
			certificates.SetRequester(r, authenticationv1.UserInfo{Username: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"a": {"b"}}})
		})
	})
	testkinds.Updates(t, signingRequest, []testkinds.Update{
		{"update: the spec is put back", "", "spec.signerName: x.y/z\nmetadata.labels: {a: b}", "spec.signerName: a.b/c"},
	}, func(r, old *certificates.Request) []string {
		return testkinds.Changes(r, func(r *certificates.Request) { certificates.KeepRequest(r, old) })
	})
}

const (
	approvedRequest  = "status.conditions: [{type: Approved, status: \"True\", reason: a}]\n"
	stampedCondition = "lastUpdateTime: 2020-01-01T00:00:00Z, lastTransitionTime: 2020-01-01T00:00:00Z"
)

func TestApproveRequest(t *testing.T) {
	testkinds.Updates(t, signingRequest, []testkinds.Update{
		{"conditions change, with times", "", approvedRequest, "status.conditions[0].lastTransitionTime: ...\nstatus.conditions[0].lastUpdateTime: ...\nstatus.conditions[0].reason: a\nstatus.conditions[0].status: True\nstatus.conditions[0].type: Approved\nstatus: removed"},
		{"times that were sent stay", "", "status.conditions: [{type: Approved, status: \"True\", " + stampedCondition + "}]", "status.conditions[0].lastTransitionTime: 2020-01-01T00:00:00Z\nstatus.conditions[0].lastUpdateTime: 2020-01-01T00:00:00Z\nstatus.conditions[0].status: True\nstatus.conditions[0].type: Approved\nstatus: removed"},
		{"a transition keeps its time", "status.conditions: [{type: A, status: \"True\", " + stampedCondition + "}]", "status.conditions: [{type: A, status: \"True\"}]", "status.conditions[0].lastUpdateTime: ..."},
		{"metadata change", "", "metadata: {name: x, labels: {a: b}, annotations: {c: d}, finalizers: [e/f]}", "metadata.annotations.c: d\nmetadata.finalizers[0]: e/f\nmetadata.labels.a: b"},
		{"the certificate stays", "", "status.certificate: eA==", ""},
		{"the spec stays", "", "spec.signerName: x.y/z", ""},
	}, func(sent, old *certificates.Request) []string {
		return testkinds.Changes(old, func(r *certificates.Request) {
			if err := certificates.Approve(r, sent); err != nil {
				t.Error(err)
			}
		})
	})
	testkinds.Updates(t, signingRequest, []testkinds.Update{
		{"approval approves", "", approvedRequest, ""},
		{"approval denies", "", "status.conditions: [{type: Denied, status: \"True\"}]", ""},
	}, func(r, old *certificates.Request) []string {
		return testkinds.Texts(certificates.ValidateApproval(r, old))
	})
}

func TestSignRequest(t *testing.T) {
	testkinds.Updates(t, signingRequest, []testkinds.Update{
		{"the certificate is set", approvedRequest, "status.certificate: eA==", "status.certificate: eA==\nstatus.conditions[0].lastTransitionTime: ...\nstatus.conditions[0].lastUpdateTime: ..."},
		{"a decision is put back", approvedRequest, "status.conditions: [{type: Approved, status: \"True\", reason: b}]", "status.conditions[0].lastTransitionTime: ...\nstatus.conditions[0].lastUpdateTime: ..."},
		{"other conditions change", approvedRequest, "status.conditions[1]: {type: Failed, status: \"True\", " + stampedCondition + "}", "status.conditions[0].lastTransitionTime: ...\nstatus.conditions[0].lastUpdateTime: ...\nstatus.conditions[1].lastTransitionTime: 2020-01-01T00:00:00Z\nstatus.conditions[1].lastUpdateTime: 2020-01-01T00:00:00Z\nstatus.conditions[1].status: True\nstatus.conditions[1].type: Failed"},
		{"metadata change", "", "metadata: {name: x, labels: {a: b}}", "metadata.labels.a: b"},
		{"the spec stays", "", "spec.signerName: x.y/z", ""},
	}, func(sent, old *certificates.Request) []string {
		return testkinds.Changes(old, func(r *certificates.Request) {
			if err := certificates.Sign(r, sent); err != nil {
				t.Error(err)
			}
		})
	})
	testkinds.Updates(t, signingRequest, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"status signs", approvedRequest, "certificate: " + pemBlock("CERTIFICATE", issuedCertificate), ""},
		{"status fails", approvedRequest, "conditions[1]: {type: Failed, status: \"True\"}", ""},
		{"status does not approve", "", approvedRequest, `conditions: Forbidden: updates may not add a condition of type "Approved"`},
		{"status does not deny", "", "conditions: [{type: Denied, status: \"True\"}]", `conditions: Forbidden: updates may not add a condition of type "Denied"`},
		{"a certificate is in PEM", "", "certificate: eA==", `certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`},
		{"a certificate is a certificate", "", "certificate: " + pemBlock("CERTIFICATE REQUEST", signedRequest), `certificate: Invalid value: "<certificate data>": only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"`},
		{"a certificate is complete", "", "certificate: " + pemBlock("CERTIFICATE", issuedCertificate[:20]), `certificate: Invalid value: "<certificate data>": x509: malformed certificate`},
		{"a certificate stays", "certificate: " + pemBlock("CERTIFICATE", issuedCertificate), "certificate: ''", "certificate: Forbidden: updates may not modify existing certificate content"},
		{"a wrong certificate stays", "certificate: eA==", "certificate: eQ==", "certificate: Forbidden: updates may not modify existing certificate content"},
	}), func(r, old *certificates.Request) []string {
		return testkinds.Texts(certificates.ValidateStatus(r, old))
	})
}

func TestRequestConditions(t *testing.T) {
	testkinds.Updates(t, signingRequest, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"a type is required", "", "conditions: [{status: \"True\"}]", "conditions[0].type: Required value"},
		{"a status is required", "", "conditions: [{type: A}]", "conditions[0].status: Required value"},
		{"a status is known", "", "conditions: [{type: A, status: Any}]", `conditions[0].status: Unsupported value: "Any": supported values: "False", "True", "Unknown"`},
		{"a decision is true", "", "conditions: [{type: Failed, status: \"False\"}]", `conditions[0].status: Unsupported value: "False": supported values: "True"`},
		{"types are unique", "", "conditions: [{type: A, status: \"True\"}, {type: A, status: \"True\"}]", `conditions[1].type: Duplicate value: "A"`},
		{"approved or denied", approvedRequest, "conditions[1]: {type: Denied, status: \"True\"}", `conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`},
		{"a decision is final", approvedRequest, "conditions: []", `conditions: Forbidden: updates may not remove a condition of type "Approved"`},
		{"a failure is final", "conditions: [{type: Failed, status: \"True\"}]", "conditions: []", `conditions: Forbidden: updates may not remove a condition of type "Failed"`},
		{"wrong stored conditions stay", "conditions: [{type: A, status: \"True\"}, {type: A, status: \"True\"}]", "metadata.labels: {a: b}", ""},
	}), func(r, old *certificates.Request) []string {
		return testkinds.Texts(certificates.ValidateApproval(r, old))
	})
}
