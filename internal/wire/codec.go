package wire

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// MediaType is a serialization of one object.
type MediaType string

const (
	JSON     MediaType = "application/json"
	YAML     MediaType = "application/yaml"
	Protobuf MediaType = "application/vnd.kubernetes.protobuf"
)

// Decoded is an object from a request body.
type Decoded struct {
	Object runtime.Object
	// Strict are the complaints of field validation in the order in which
	// kube-apiserver gives them (rows F1 to F5): unknown and duplicate fields. Empty
	// when there are none.
	Strict []string
}

// Decode reads one object of the type from a request body. Unknown fields are
// dropped and reported in Strict. Errors are *apierrors.StatusError with the
// words of row A13. The body may lack kind and apiVersion.
func Decode(t *resource.Type, m MediaType, body []byte) (Decoded, error) { panic("contract") }

// Encoded is an object as it is stored: JSON that begins with Head(t), with room
// for the digits of its resource version at RevisionAt.
type Encoded struct {
	Bytes      []byte
	RevisionAt int
}

// Encode writes an object of the type. Its metadata.resourceVersion is ignored:
// Bytes holds `"resourceVersion":""`, and RevisionAt is the offset between the
// quotes.
func Encode(t *resource.Type, o runtime.Object) (Encoded, error) { panic("contract") }

// Head is what every stored object of the type begins with:
// `{"kind":"Pod","apiVersion":"v1",`. An item of a list is `{` and the rest.
func Head(t *resource.Type) string { panic("contract") }

// As returns a stored value in the type's own version: the value itself when
// that is how it is stored, a conversion otherwise.
func As(t *resource.Type, value []byte) ([]byte, error) { panic("contract") }
