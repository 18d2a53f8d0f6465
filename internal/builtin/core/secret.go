package core

import (
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultSecret merges stringData, which is write-only, into data.
func DefaultSecret(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

// ValidateSecret checks the keys, the size, and the keys that the type requires.
func ValidateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, value := range s.Data {
		errs = checkKey(errs, "data", key)
		size += len(value)
	}
	check.InOrder(errs)
	if size > maxData {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", maxData))
	}
	return append(errs, validateSecretType(s)...)
}

func validateSecretType(s *corev1.Secret) (errs field.ErrorList) {
	has := func(key string) bool { _, ok := s.Data[key]; return ok }
	want := func(key string) { errs = append(errs, field.Required(field.NewPath("data").Key(key), "")) }
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		errs = jsonObject(s, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		errs = jsonObject(s, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		if !has(corev1.BasicAuthUsernameKey) && !has(corev1.BasicAuthPasswordKey) { // either may be empty
			want(corev1.BasicAuthUsernameKey)
			want(corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			want(corev1.SSHAuthPrivateKey)
		}
	case corev1.SecretTypeTLS:
		if !has(corev1.TLSCertKey) {
			want(corev1.TLSCertKey)
		}
		if !has(corev1.TLSPrivateKeyKey) {
			want(corev1.TLSPrivateKeyKey)
		}
	}
	return errs
}

// jsonObject checks that a value is a JSON object. The error does not show the value.
func jsonObject(s *corev1.Secret, key string) field.ErrorList {
	path := field.NewPath("data").Key(key)
	value, ok := s.Data[key]
	if !ok {
		return field.ErrorList{field.Required(path, "")}
	}
	var any map[string]any
	if err := json.Unmarshal(value, &any); err != nil {
		return field.ErrorList{field.Invalid(path, "<secret contents redacted>", err.Error())}
	}
	return nil
}

// ValidateSecretUpdate checks the new object, that the type does not change, and that an immutable
// Secret does not change.
func ValidateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := validation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if check.IsTrue(old.Immutable) {
		if !check.IsTrue(s.Immutable) {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), frozen))
		}
		if !reflect.DeepEqual(s.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
		}
	}
	return append(errs, ValidateSecret(s)...)
}
