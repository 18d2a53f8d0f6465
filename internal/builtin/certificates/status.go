package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

type condition = certificatesv1.CertificateSigningRequestCondition

// Approve updates the subresource approval: conditions and metadata.
func Approve(o, sent runtime.Object) error {
	r, next := o.(*Request), sent.(*Request)
	old := r.Status.Conditions
	r.Status.Conditions = next.Status.Conditions
	takeMetadata(&r.ObjectMeta, &next.ObjectMeta)
	stampConditions(r.Status.Conditions, old)
	return nil
}

// Sign updates the subresource status: the certificate, conditions and metadata. Approved and
// Denied are restored.
func Sign(o, sent runtime.Object) error {
	r, next := o.(*Request), sent.(*Request)
	old := r.Status.Conditions
	r.Status = next.Status
	takeMetadata(&r.ObjectMeta, &next.ObjectMeta)
	for _, t := range decided {
		keepConditions(r.Status.Conditions, old, t)
	}
	stampConditions(r.Status.Conditions, old)
	return nil
}

// takeMetadata copies the metadata that a client may change.
func takeMetadata(to, from *metav1.ObjectMeta) {
	to.Labels, to.Annotations, to.Finalizers, to.OwnerReferences = from.Labels, from.Annotations, from.Finalizers, from.OwnerReferences
}

// places returns the indexes of the conditions of a type.
func places(all []condition, t certificatesv1.RequestConditionType) (at []int) {
	for i := range all {
		if all[i].Type == t {
			at = append(at, i)
		}
	}
	return at
}

// keepConditions restores the old conditions of a type. If their number changed it does
// nothing: validation rejects that.
func keepConditions(all, old []condition, t certificatesv1.RequestConditionType) {
	at, from := places(all, t), places(old, t)
	if len(at) != len(from) {
		return
	}
	for i := range at {
		all[at[i]] = old[from[i]]
	}
}

// stampConditions sets the times that a client left out.
func stampConditions(all, old []condition) {
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
		same := func(o condition) bool {
			return o.Type == c.Type && o.Status == c.Status && !o.LastTransitionTime.IsZero()
		}
		if j := slices.IndexFunc(old, same); j >= 0 {
			c.LastTransitionTime = old[j].LastTransitionTime
		}
	}
}

// decided are the conditions of a decision. Conditions in final cannot be removed.
var (
	decided = []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}
	final   = append(slices.Clone(decided), certificatesv1.CertificateFailed)
)

// ValidateApproval checks an update of the subresource approval.
func ValidateApproval(r, old *Request) field.ErrorList { return validateStatus(r, old, true) }

// ValidateStatus checks an update of the subresource status.
func ValidateStatus(r, old *Request) field.ErrorList { return validateStatus(r, old, false) }

func validateStatus(r, old *Request, approval bool) field.ErrorList {
	errs := validateConditions(r.Status.Conditions, toleratedIn(old.Status.Conditions))
	path := field.NewPath("status", "certificate")
	changed := !bytes.Equal(r.Status.Certificate, old.Status.Certificate)
	if changed && checkCertificate(old.Status.Certificate) == nil {
		if err := checkCertificate(r.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(path, "<certificate data>", err.Error()))
		}
	}
	errs = append(errs, keptConditions(r.Status.Conditions, old.Status.Conditions, approval)...)
	if changed && len(old.Status.Certificate) > 0 {
		errs = append(errs, field.Forbidden(path, "updates may not modify existing certificate content"))
	}
	return errs
}

// tolerated are the faults of stored conditions, which an update may keep.
type tolerated struct{ noType, twice, both bool }

func toleratedIn(all []condition) (t tolerated) {
	var seen check.Seen[certificatesv1.RequestConditionType]
	for _, c := range all {
		t.noType = t.noType || c.Type == ""
		t.twice = seen.Again(c.Type) || t.twice
	}
	t.both = len(places(all, certificatesv1.CertificateApproved)) > 0 && len(places(all, certificatesv1.CertificateDenied)) > 0
	return t
}

var (
	onlyTrue  = []corev1.ConditionStatus{corev1.ConditionTrue}
	anyStatus = []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
)

// validateConditions checks conditions on their own, except for the tolerated faults.
func validateConditions(all []condition, may tolerated) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	var seen check.Seen[certificatesv1.RequestConditionType]
	for i, c := range all {
		at := path.Index(i)
		if c.Type == "" && !may.noType {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		allowed := anyStatus
		if slices.Contains(final, c.Type) {
			allowed = onlyTrue
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case !slices.Contains(allowed, c.Status):
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, allowed))
		}
		for _, other := range decided {
			if !may.both && slices.Contains(decided, c.Type) && c.Type != other && seen.Has(other) {
				errs = append(errs, field.Invalid(path, c.Type, "Approved and Denied conditions are mutually exclusive").WithOrigin("zeroOrOneOf"))
			}
		}
		if seen.Again(c.Type) && !may.twice {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
	}
	return errs
}

// keptConditions checks that final conditions are not removed, and that only the subresource
// approval adds a decision.
func keptConditions(next, old []condition, approval bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	for _, t := range final {
		if len(places(next, t)) < len(places(old, t)) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	for _, t := range decided {
		if !approval && len(places(next, t)) > len(places(old, t)) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	return errs
}

// checkCertificate checks that text is empty or has certificates in PEM.
func checkCertificate(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	found := false
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text, found = rest, true
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		if all, err := x509.ParseCertificates(block.Bytes); err != nil {
			return err
		} else if len(all) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if !found {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
