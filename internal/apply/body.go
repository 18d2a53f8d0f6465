package apply

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// Before is what an update starts from: row G7. live is the array of the live
// object and sent the one of the body, both JSON; no bytes are an absent one. An
// empty array, or one with one empty entry, resets; what cannot be read changes
// nothing. Writers of subresources have no say: do not ask for them.
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

// SameButTimes reports whether two arrays differ in nothing but times: with an object
// that is the same otherwise, that is no write (row G3).
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

// ManagerOf is the name of the manager that a request did not name: the User-Agent
// up to its first slash, as far as it can be printed and is not too long (row G7).
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
