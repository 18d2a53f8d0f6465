package core

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// maxData is the maximum size of all values of a ConfigMap or Secret, in bytes.
const maxData = corev1.MaxSecretSize

// frozen is the error of a changed field of an immutable object.
const frozen = "field is immutable when `immutable` is set"

// ValidateConfigMap checks keys and size.
func ValidateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, value := range c.Data {
		errs = checkKey(errs, "data", key)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	check.InOrder(errs)
	text := len(errs)
	for key, value := range c.BinaryData {
		errs = checkKey(errs, "binaryData", key)
		size += len(value)
	}
	check.InOrder(errs[text:])
	if size > maxData {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxData))
	}
	return errs
}

// ValidateConfigMapUpdate checks the new object, and that an immutable ConfigMap does not change.
func ValidateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if check.IsTrue(old.Immutable) {
		if !check.IsTrue(c.Immutable) {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), frozen))
		}
		if !maps.Equal(c.Data, old.Data) { // nil equals empty, unlike in binaryData
			errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
		}
		if !reflect.DeepEqual(c.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), frozen))
		}
	}
	return append(errs, ValidateConfigMap(c)...)
}

// checkKey appends the errors of a key of data or binaryData.
func checkKey(errs field.ErrorList, of, key string) field.ErrorList {
	for _, fault := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(field.NewPath(of).Key(key), key, fault))
	}
	return errs
}
