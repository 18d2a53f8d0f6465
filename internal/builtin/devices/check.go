// Package devices has the rules of the kinds of resource.k8s.io: devices, and claims to them.
// It compiles the CEL expressions that select devices, and never evaluates one: schedulers do.
package devices

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	longestDriver = 63
	// longestKey bounds the name of an attribute or a capacity, with its domain.
	longestKey = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
)

// wrongs returns an error for each message about a value.
func wrongs(value string, path *field.Path, words []string) (errs field.ErrorList) {
	for _, wrong := range words {
		errs = append(errs, field.Invalid(path, value, wrong))
	}
	return errs
}

// Errors have the origin of the declared rule that says the same, with words of its own.

func validateLabel(name string, path *field.Path) field.ErrorList {
	return wrongs(name, path, validation.IsDNS1123Label(name)).WithOrigin("format=k8s-short-name")
}

func validateDriver(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > longestDriver {
		errs = append(errs, field.TooLong(path, "", longestDriver))
	}
	return append(errs, wrongs(name, path, validation.IsDNS1123Subdomain(strings.ToLower(name))).WithOrigin("format=k8s-long-name-caseless")...)
}

func validatePool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, wrongs(part, path, validation.IsDNS1123Subdomain(part))...)
	}
	return errs.WithOrigin("format=k8s-resource-pool-name")
}

// validateQualified checks the name of an attribute or a capacity: an identifier,
// maybe behind a domain.
func validateQualified(name string, path *field.Path) field.ErrorList {
	domain, id, ok := strings.Cut(name, "/")
	if !ok {
		return validateIdentifier(name, path)
	}
	if strings.Contains(id, "/") {
		return nil // kube-apiserver accepts it
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
	} else {
		errs = append(errs, validateDriver(domain, path)...)
	}
	if id == "" {
		return append(errs, field.Invalid(path, "", "the name must not be empty"))
	}
	return append(errs, validateIdentifier(id, path)...)
}

func validateFullyQualified(name string, path *field.Path) field.ErrorList {
	errs := validateQualified(name, path)
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs.WithOrigin("format=k8s-resource-fully-qualified-name")
}

func validateIdentifier(id string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, wrongs(id, path, content.IsCIdentifier(id))...)
}

// each checks the items of a list, and that there are at most most of them; -1: no limit.
func each[T any](all []T, most int, path *field.Path, check func(item *T, path *field.Path) field.ErrorList) field.ErrorList {
	if most >= 0 && len(all) > most {
		return field.ErrorList{field.TooMany(path, len(all), most)}
	}
	var errs field.ErrorList
	for i := range all {
		errs = append(errs, check(&all[i], path.Index(i))...)
	}
	return errs
}

// eachOnce is each for a list whose items have unique keys.
func eachOnce[T any, K comparable](all []T, most int, path *field.Path, key func(*T) K, check func(item *T, path *field.Path) field.ErrorList) field.ErrorList {
	errs := each(all, most, path, check)
	if most >= 0 && len(all) > most {
		return errs
	}
	seen := map[K]bool{}
	for i := range all {
		k := key(&all[i])
		if seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

func itself(s *string) string { return *s }

// eachKey checks the members of a map, in the order of their keys. Paths show keys longer than
// longest without their middle.
func eachKey[K ~string, T any](all map[K]T, most, longest int, path *field.Path, checkKey func(key string, path *field.Path) field.ErrorList, check func(item *T, path *field.Path) field.ErrorList) field.ErrorList {
	if most >= 0 && len(all) > most {
		return field.ErrorList{field.TooMany(path, len(all), most)}
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(all)) {
		item := all[key]
		errs = append(errs, checkKey(string(key), path)...)
		errs = append(errs, check(&item, path.Key(shortened(string(key), longest)))...)
	}
	return errs
}

func shortened(text string, longest int) string {
	const dots = "..."
	if len(text) <= longest {
		return text
	}
	rest := longest - len(dots)
	return text[:(rest+1)/2] + dots + text[len(text)-rest/2:]
}

// validateObject requires a JSON object of at most most bytes.
func validateObject(raw runtime.RawExtension, most int, path *field.Path) field.ErrorList {
	var v any
	if len(raw.Raw) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(raw.Raw) > most {
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	if err := json.Unmarshal(raw.Raw, &v); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	if v == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if _, ok := v.(map[string]any); !ok {
		return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a valid JSON object")}
	}
	return nil
}

// validateBinding checks the conditions that a device needs before it is used, and those that
// say that it failed.
func validateBinding(ready, failed []string, path *field.Path) field.ErrorList {
	readyPath, failedPath := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	label := func(name *string, path *field.Path) field.ErrorList {
		return metav1validation.ValidateLabelName(*name, path)
	}
	errs := each(ready, resourcev1.BindingConditionsMaxSize, readyPath, label)
	errs = append(errs, each(failed, resourcev1.BindingFailureConditionsMaxSize, failedPath, label)...)
	for i, c := range ready {
		if slices.Contains(ready[:i], c) {
			errs = append(errs, field.Duplicate(readyPath.Index(i), c))
		}
	}
	for i, c := range failed {
		if slices.Contains(failed[:i], c) {
			errs = append(errs, field.Duplicate(failedPath.Index(i), c))
		}
		if slices.Contains(ready, c) {
			errs = append(errs, field.Invalid(failedPath.Index(i), c, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(ready) == 0 && len(failed) > 0 {
		errs = append(errs, field.Invalid(readyPath, ready, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failed) == 0 && len(ready) > 0 {
		errs = append(errs, field.Invalid(failedPath, failed, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}
