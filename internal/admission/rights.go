package admission

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// This file has the plugins that require a right beyond the one to send the request.

const (
	signingRequests        = "certificatesigningrequests.certificates.k8s.io"
	trustBundles           = "clustertrustbundles.certificates.k8s.io"
	podCertificateRequests = "podcertificaterequests.certificates.k8s.io"
)

// allowed reports whether the user of a request has another right, and the reason. The server itself has all rights. The
// error is that of authz.Undecided.
func (c *Config) allowed(ctx context.Context, a *registry.Attributes, right authz.Attributes) (bool, string, error) {
	if a.User == nil {
		return true, "", nil
	}
	right.User, right.IsResource = a.User, true
	return authz.Allowed(ctx, c.Authz, &right)
}

// requireSigner returns an error unless the user has a right on a signer, or on all signers of its domain.
func (c *Config) requireSigner(ctx context.Context, a *registry.Attributes, verb, signer string) error {
	ok, err := c.onSigner(ctx, a, verb, signer)
	if ok || err != nil {
		return err
	}
	return a.Forbidden("user not permitted to %s requests with signerName %q", verb, signer)
}

// onSigner reports whether the user has a right on a signer, or on all signers of its domain. The error is that of
// authz.Undecided.
func (c *Config) onSigner(ctx context.Context, a *registry.Attributes, verb, signer string) (ok bool, undecided error) {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		ok, _, err := c.allowed(ctx, a, authz.Attributes{Verb: verb, Group: "certificates.k8s.io", Version: "*", Resource: "signers", Name: name})
		if ok {
			return true, nil
		}
		undecided = cmp.Or(undecided, err)
	}
	return false, undecided
}

// updatesOf returns a Plugin.Handles for updates of a subresource of CertificateSigningRequests.
func updatesOf(subresource string) func(*store.State, registry.Target, admissionv1.Operation) bool {
	return func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
		return t.Subresource == subresource && t.Type.Collection == signingRequests && o == admissionv1.Update
	}
}

// certificateApproval requires the right `approve` on the signer of a CertificateSigningRequest
// from users who approve or deny it.
func certificateApproval(c *Config) registry.Plugin {
	if c.Authz == nil {
		return registry.Plugin{}
	}
	return registry.Plugin{Handles: updatesOf("approval"), Validate: func(ctx context.Context, a *registry.Attributes) error {
		return c.requireSigner(ctx, a, "approve", a.Old.(*certificatesv1.CertificateSigningRequest).Spec.SignerName)
	}}
}

// certificateSigning requires the right `sign` on the signer of a CertificateSigningRequest from
// users who change its certificate or its conditions.
func certificateSigning(c *Config) registry.Plugin {
	if c.Authz == nil {
		return registry.Plugin{}
	}
	return registry.Plugin{Handles: updatesOf("status"), Validate: func(ctx context.Context, a *registry.Attributes) error {
		old, next := a.Old.(*certificatesv1.CertificateSigningRequest), a.Object.(*certificatesv1.CertificateSigningRequest)
		if bytes.Equal(old.Status.Certificate, next.Status.Certificate) && equality.Semantic.DeepEqual(old.Status.Conditions, next.Status.Conditions) {
			return nil
		}
		return c.requireSigner(ctx, a, "sign", old.Spec.SignerName)
	}}
}

// bundleAttestation requires the right `attest` on the signer of a ClusterTrustBundle from users who write it. The garbage
// collector and a migration of stored objects need no right.
func bundleAttestation(c *Config) registry.Plugin {
	if c.Authz == nil {
		return registry.Plugin{}
	}
	return registry.Plugin{Handles: registry.Objects(trustBundles, admissionv1.Create, admissionv1.Update), Validate: func(ctx context.Context, a *registry.Attributes) error {
		signer := a.Object.(*certificatesv1.ClusterTrustBundle).Spec.SignerName
		if signer == "" || a.Operation == admissionv1.Update && onlyForCollector(a) {
			return nil
		}
		ok, err := c.onSigner(ctx, a, "attest", signer)
		if ok || err != nil {
			return err
		}
		return a.Forbidden("user not permitted to attest for signerName %q", signer)
	}}
}

// podCertificateSigning requires the right `sign` on the signer of a PodCertificateRequest from users who change its
// status. The error is one of the object's, and the only one: an invalid status is not signed.
func podCertificateSigning(c *Config) registry.Plugin {
	if c.Authz == nil {
		return registry.Plugin{}
	}
	handles := func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
		return t.Subresource == "status" && t.Type.Collection == podCertificateRequests && o == admissionv1.Update
	}
	return registry.Plugin{Handles: handles, Causes: func(ctx context.Context, a *registry.Attributes) (field.ErrorList, error) {
		old, next := a.Old.(*certificatesv1.PodCertificateRequest), a.Object.(*certificatesv1.PodCertificateRequest)
		if equality.Semantic.DeepEqual(old.Status, next.Status) || len(certificates.ValidatePodRequestStatus(next, old)) > 0 {
			return nil, nil
		}
		ok, err := c.onSigner(ctx, a, "sign", old.Spec.SignerName)
		if ok || err != nil {
			return nil, err
		}
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"),
			fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", a.User.Name, old.Spec.SignerName))}, nil
	}}
}
