package wire

import (
	"encoding/json"

	fastjson "github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// A decoder that is three times as fast reads bodies and stored values first. It is
// stricter than the field's: what it does not take (unknown and duplicate members,
// members in another case, numbers with a fraction where there is none, lone
// surrogates, every mistake) is read again by the field's decoder, whose leniency
// and words are on the wire. What both take they read alike: FuzzUnmarshal.
var strictly = fastjson.RejectUnknownMembers(true)

// unmarshalStrict reads JSON into a new object. Complaints are those of field
// validation.
func unmarshalStrict(data []byte, create func() runtime.Object) (o runtime.Object, complaints []error, err error) {
	o = create()
	if fastjson.Unmarshal(data, o, strictly) == nil {
		return o, nil, nil
	}
	o = create() // the other one may be half full
	complaints, err = kjson.UnmarshalStrict(data, o)
	return o, complaints, err
}

// Unmarshal reads a stored value into a new object.
func Unmarshal(value []byte, create func() runtime.Object) (runtime.Object, error) {
	o := create()
	if fastjson.Unmarshal(value, o) == nil {
		return o, nil
	}
	o = create()
	return o, json.Unmarshal(value, o)
}
