package builtin

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type certificateRequest = certificatesv1.CertificateSigningRequest

// setRequester writes down who asks for a certificate, for those who decide.
func setRequester(o runtime.Object, by authenticationv1.UserInfo) {
	spec := &o.(*certificateRequest).Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = by.Username, by.UID, slices.Clone(by.Groups), nil
	for key, values := range by.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		spec.Extra[key] = certificatesv1.ExtraValue(values)
	}
}

// keepRequest: what was asked for cannot become something else.
func keepRequest(next, current runtime.Object) {
	current.(*certificateRequest).Spec.DeepCopyInto(&next.(*certificateRequest).Spec)
}

// approveCertificate is the subresource approval: the conditions change, and the
// metadata.
func approveCertificate(o, sent runtime.Object) error {
	r, next := o.(*certificateRequest), sent.(*certificateRequest)
	old := r.Status.Conditions
	r.Status.Conditions = next.Status.Conditions
	takeMetadata(&r.ObjectMeta, &next.ObjectMeta)
	stampConditions(r.Status.Conditions, old)
	return invalidRequest(r, append(validateConditions(r.Status.Conditions), keptConditions(r.Status.Conditions, old, true)...))
}

// signCertificate is the subresource status: the certificate is added, once, and
// conditions that decide nothing.
func signCertificate(o, sent runtime.Object) error {
	r, next := o.(*certificateRequest), sent.(*certificateRequest)
	old := r.Status
	r.Status = next.Status
	takeMetadata(&r.ObjectMeta, &next.ObjectMeta)
	stampConditions(r.Status.Conditions, old.Conditions)
	path := field.NewPath("status", "certificate")
	errs := validateConditions(r.Status.Conditions)
	if len(r.Status.Certificate) > 0 {
		errs = append(errs, validateCertificate(r.Status.Certificate, path)...)
	}
	errs = append(errs, keptConditions(r.Status.Conditions, old.Conditions, false)...)
	if len(old.Certificate) > 0 && !bytes.Equal(old.Certificate, r.Status.Certificate) {
		errs = append(errs, field.Forbidden(path, "updates may not modify existing certificate content"))
	}
	return invalidRequest(r, errs)
}

func invalidRequest(r *certificateRequest, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: certificatesv1.GroupName, Kind: "CertificateSigningRequest"}, r.Name, errs)
}

// takeMetadata moves what a client may change of the metadata.
func takeMetadata(to, from *metav1.ObjectMeta) {
	to.Labels, to.Annotations, to.Finalizers, to.OwnerReferences = from.Labels, from.Annotations, from.Finalizers, from.OwnerReferences
}

// stampConditions gives conditions the times that a client left out.
func stampConditions(all, old []certificatesv1.CertificateSigningRequestCondition) {
	now := metav1.Now()
	for i := range all {
		c := &all[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, o := range old {
			if o.Type == c.Type && o.Status == c.Status && !o.LastTransitionTime.IsZero() {
				c.LastTransitionTime = o.LastTransitionTime
			}
		}
	}
}

var decided = []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}

// validateConditions checks conditions by themselves.
func validateConditions(all []certificatesv1.CertificateSigningRequestCondition) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range all {
		at := path.Index(i)
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		states := []corev1.ConditionStatus{corev1.ConditionTrue}
		if c.Type != certificatesv1.CertificateFailed && !slices.Contains(decided, c.Type) {
			states = []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case !slices.Contains(states, c.Status):
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, states))
		}
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		for _, other := range decided {
			if slices.Contains(decided, c.Type) && c.Type != other && seen[other] {
				errs = append(errs, field.Invalid(path, c.Type, "Approved and Denied conditions are mutually exclusive"))
			}
		}
		seen[c.Type] = true
	}
	return errs
}

// keptConditions: what decides on a request cannot be taken back, and is added by
// the subresource approval alone.
func keptConditions(next, old []certificatesv1.CertificateSigningRequestCondition, approval bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	has := func(all []certificatesv1.CertificateSigningRequestCondition, t certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(all, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
	}
	for _, t := range append(slices.Clone(decided), certificatesv1.CertificateFailed) {
		if has(old, t) && !has(next, t) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	for _, t := range decided {
		if !approval && !has(old, t) && has(next, t) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	return errs
}

// validateCertificate requires certificates in PEM.
func validateCertificate(text []byte, path *field.Path) field.ErrorList {
	refuse := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, "<certificate data>", why)}
	}
	found := false
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if block.Type != "CERTIFICATE" {
			return refuse(fmt.Sprintf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type))
		}
		if len(block.Headers) > 0 {
			return refuse("no PEM block headers are permitted")
		}
		if all, err := x509.ParseCertificates(block.Bytes); err != nil {
			return refuse(err.Error())
		} else if len(all) == 0 {
			return refuse("found CERTIFICATE PEM block containing 0 certificates")
		}
		found = true
	}
	if !found {
		return refuse("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
