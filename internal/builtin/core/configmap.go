package core

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// maxData is how many bytes the values of a ConfigMap or Secret may have together.
const maxData = corev1.MaxSecretSize

// frozen is what is said of a field that changed in spite of `immutable`.
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

// ValidateConfigMapUpdate checks the new object, and that one that is immutable
// stays as it is.
func ValidateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if check.IsTrue(old.Immutable) {
		if !check.IsTrue(c.Immutable) {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), frozen))
		}
		if !maps.Equal(c.Data, old.Data) { // an empty map is as good as none, unlike in binaryData
			errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
		}
		if !reflect.DeepEqual(c.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), frozen))
		}
	}
	return append(errs, ValidateConfigMap(c)...)
}

// checkKey adds what is wrong with a key of a map of data.
func checkKey(errs field.ErrorList, of, key string) field.ErrorList {
	for _, fault := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(field.NewPath(of).Key(key), key, fault))
	}
	return errs
}
