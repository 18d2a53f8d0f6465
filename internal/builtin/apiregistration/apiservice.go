// Package apiregistration has the rules of the kinds of apiregistration.k8s.io.
package apiregistration

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	defaultPort            = 443
	highestGroupPriority   = 20000
	highestVersionPriority = 1000
)

// DefaultAPIService sets the default port of the service.
func DefaultAPIService(s *apiregistrationv1.APIService) {
	if r := s.Spec.Service; r != nil && r.Port == nil {
		port := int32(defaultPort)
		r.Port = &port
	}
}

// NewStatus sets the status of a new APIService: one without a service is local, and so available.
func NewStatus(s *apiregistrationv1.APIService) {
	if s.Spec.Service != nil {
		return
	}
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "Local", Message: "Local APIServices are always available",
	}}
}

// ValidateAPIService checks the group and version, which make up the name, and the service.
func ValidateAPIService(s *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	group, version := s.Spec.Group, s.Spec.Version
	if want := version + "." + group; s.Name != "" && s.Name != want && len(content.IsPathSegmentName(s.Name)) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	if group == "" && version != "v1" {
		errs = append(errs, field.Required(path.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	if group != "" {
		for _, wrong := range validation.IsDNS1123Subdomain(group) {
			errs = append(errs, field.Invalid(path.Child("group"), group, wrong))
		}
	}
	for _, wrong := range validation.IsDNS1035Label(version) {
		errs = append(errs, field.Invalid(path.Child("version"), version, wrong))
	}
	if p := s.Spec.GroupPriorityMinimum; p <= 0 || p > highestGroupPriority {
		errs = append(errs, field.Invalid(path.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := s.Spec.VersionPriority; p <= 0 || p > highestVersionPriority {
		errs = append(errs, field.Invalid(path.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	return append(errs, validateServer(&s.Spec, path)...)
}

// validateServer checks the service, its port and its TLS settings.
func validateServer(s *apiregistrationv1.APIServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	insecure := path.Child("insecureSkipTLSVerify")
	if s.Service == nil {
		if n := len(s.CABundle); n > 0 {
			errs = append(errs, field.Invalid(path.Child("caBundle"), fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle"))
		}
		if s.InsecureSkipTLSVerify {
			errs = append(errs, field.Invalid(insecure, true, "local APIServices may not have insecureSkipTLSVerify"))
		}
		return errs
	}
	at := path.Child("service")
	if s.Service.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if s.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if p := s.Service.Port; p != nil {
		if wrong := validation.IsValidPortNum(int(*p)); wrong != nil {
			errs = append(errs, field.Invalid(at.Child("port"), *p, "port is not valid: "+strings.Join(wrong, ", ")))
		}
	}
	if s.InsecureSkipTLSVerify && len(s.CABundle) > 0 {
		errs = append(errs, field.Invalid(insecure, true, "may not be true if caBundle is present"))
	}
	return errs
}

// ValidateAPIServiceUpdate checks the new object like a created one.
func ValidateAPIServiceUpdate(s, _ *apiregistrationv1.APIService) field.ErrorList {
	return ValidateAPIService(s)
}

var statuses = []apiregistrationv1.ConditionStatus{apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown}

// ValidateStatus checks the conditions.
func ValidateStatus(s, _ *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	for i, c := range s.Status.Conditions {
		if !slices.Contains(statuses, c.Status) {
			errs = append(errs, field.NotSupported(field.NewPath("status", "conditions").Index(i).Child("status"), c.Status, statuses))
		}
	}
	return errs
}
