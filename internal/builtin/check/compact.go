package check

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// Compact removes white space from embedded JSON, so that a client that sends the same object again
// changes nothing. It leaves invalid JSON unchanged.
func Compact(raw *runtime.RawExtension) {
	if bytes.ContainsAny(raw.Raw, " \n\t\r") {
		var b bytes.Buffer
		if json.Compact(&b, raw.Raw) == nil {
			raw.Raw = b.Bytes()
		}
	}
}
