package certificates_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const request = "{metadata: {name: r}, spec: {request: '', signerName: a.b/c, usages: [client auth]}}"

// TestRequest is of what is beside the request itself, which is none in all rows.
func TestRequest(t *testing.T) {
	testkinds.Rules(t, request, testkinds.Below("spec", []testkinds.Rule{
		{"a request is one", "request: eA==", `request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST`},
		{"a usage is required", "usages: []", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nusages: Required value"},
		{"a usage is known", "usages: [any auth]", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nusages[0]: Unsupported value: \"any auth\": supported values: \"any\", \"cert sign\", \"client auth\", \"code signing\", \"content commitment\", \"crl sign\", \"data encipherment\", \"decipher only\", \"digital signature\", \"email protection\", \"encipher only\", \"ipsec end system\", \"ipsec tunnel\", \"ipsec user\", \"key..."},
		{"usages are unique", "usages: [client auth, client auth]", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nusages[1]: Duplicate value: \"client auth\""},
		{"a signer is required", "signerName: ''", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nsignerName: Required value"},
		{"a signer is not the old one", "signerName: kubernetes.io/legacy-unknown", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nsignerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version"},
		{"a signer has a domain and a path", "signerName: a.b", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nsignerName: Invalid value: \"a.b\": must be a fully qualified domain and path of the form 'example.com/signer-name'"},
		{"a domain has two parts", "signerName: a/b", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nsignerName: Invalid value: \"a\": should be a domain with at least two segments separated by dots"},
		{"a domain has labels", "signerName: A.b/c", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nsignerName: Invalid value: \"A.b\": validating label \"A\": a lowercase RFC 1123 label must consist of..."},
		{"a path has labels", "signerName: a.b/C", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nsignerName: Invalid value: \"C\": validating label \"C\": a lowercase RFC 1123 subdomain must consist of..."},
		{"a life of 10 minutes", "expirationSeconds: 599", "request: Invalid value: \"\": PEM block type must be CERTIFICATE REQUEST\nexpirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"},
	}), func(r *certificates.Request) []string { return testkinds.Texts(certificates.ValidateRequest(r)) })
}

func TestConditions(t *testing.T) {
	rows := testkinds.UpdatesBelow("status", []testkinds.Update{
		{"a type is required", "", "conditions: [{status: \"True\"}]", "conditions[0].type: Required value"},
		{"a status is required", "", "conditions: [{type: A}]", "conditions[0].status: Required value"},
		{"a decision is true", "", "conditions: [{type: Failed, status: \"False\"}]", `conditions[0].status: Unsupported value: "False": supported values: "True"`},
		{"types are unique", "", "conditions: [{type: A, status: \"True\"}, {type: A, status: \"True\"}]", `conditions[1].type: Duplicate value: "A"`},
		{"approved or denied", "conditions: [{type: Approved, status: \"True\"}]", "conditions[1]: {type: Denied, status: \"True\"}", `conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`},
		{"a decision does not go", "conditions: [{type: Approved, status: \"True\"}]", "conditions: []", `conditions: Forbidden: updates may not remove a condition of type "Approved"`},
		{"a certificate is in PEM", "", "certificate: eA==", `certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`},
		{"a certificate stays", "certificate: eA==", "certificate: eQ==", "certificate: Forbidden: updates may not modify existing certificate content"},
	})
	testkinds.Updates(t, request, rows, func(r, old *certificates.Request) []string {
		return testkinds.Texts(certificates.ValidateApproval(r, old))
	})
	testkinds.Updates(t, request, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"status does not approve", "", "conditions: [{type: Approved, status: \"True\"}]", `conditions: Forbidden: updates may not add a condition of type "Approved"`},
	}), func(r, old *certificates.Request) []string {
		return testkinds.Texts(certificates.ValidateStatus(r, old))
	})
}
