package apply

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// Before returns the managed fields that an update starts from. live is the array of the
// live object and sent the one of the body, both JSON; no bytes mean an absent one. An
// empty array, or one with a single empty entry, resets them; an invalid one is ignored. Do
// not call it for subresources, whose bodies cannot change managed fields.
func Before(live, sent []byte) []byte {
	if len(sent) == 0 {
		return live
	}
	var decoded []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(sent, &decoded); err != nil || decoded == nil {
		return live
	}
	if len(decoded) == 0 || len(decoded) == 1 && reflect.DeepEqual(decoded[0], metav1.ManagedFieldsEntry{}) {
		return nil
	}
	if _, err := parseManaged(sent); err != nil {
		return live
	}
	return sent
}

// Check returns the error of kube-apiserver for managed fields that a mutating plugin has made
// invalid.
func Check(managed []metav1.ManagedFieldsEntry) error {
	return managedfields.ValidateManagedFields(managed)
}

// SameButTimes reports whether two arrays differ in times only. If nothing else in the
// object changes, that is no write.
func SameButTimes(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	was, err := parseManaged(a)
	if err != nil {
		return false
	}
	is, err := parseManaged(b)
	if err != nil || len(was) != len(is) {
		return false
	}
	for i, e := range was {
		if !e.same(is[i]) || e.apiVersion != is[i].apiVersion || string(e.fields.json) != string(is[i].fields.json) {
			return false
		}
	}
	return true
}

// ManagerOf returns the manager of a request that names none: the printable part of the
// User-Agent up to its first slash, cut to the longest allowed name.
func ManagerOf(userAgent string) string {
	product, _, _ := strings.Cut(userAgent, "/")
	var b strings.Builder
	for _, r := range product {
		if !unicode.IsPrint(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > validation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
