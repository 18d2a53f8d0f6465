package check

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// Compact takes the white space out of JSON that a kind does not look into, as it is
// stored: an object that is sent again as it was is then the same. What is no JSON stays.
func Compact(raw *runtime.RawExtension) {
	if bytes.ContainsAny(raw.Raw, " \n\t\r") {
		var b bytes.Buffer
		if json.Compact(&b, raw.Raw) == nil {
			raw.Raw = b.Bytes()
		}
	}
}
