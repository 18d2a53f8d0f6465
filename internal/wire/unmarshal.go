package wire

import (
	"encoding/json"
	"reflect"

	fastjson "github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Bodies and stored values are first read by a decoder that is three times as fast as the
// one of Kubernetes, and stricter. What it rejects (unknown and duplicate members, members
// in another case, fractions in integers, lone surrogates, every error) is read again by
// Kubernetes' decoder, whose leniency and error messages clients see. FuzzUnmarshal checks
// that both agree on what both accept.
var strictly = fastjson.RejectUnknownMembers(true)

// unmarshalStrict reads JSON into a new object. Complaints are the errors of field
// validation.
func unmarshalStrict(data []byte, create func() runtime.Object) (o runtime.Object, complaints []error, err error) {
	o = create()
	if err := CheckQuantities(data, reflect.TypeOf(o)); err != nil {
		return o, nil, err
	}
	if fastjson.Unmarshal(data, o, strictly) == nil {
		return o, nil, nil
	}
	o = create() // the other one may be half decoded
	complaints, err = kjson.UnmarshalStrict(data, o)
	return o, complaints, err
}

// UnmarshalStrict reads JSON that the server itself has made from a client's or plugin's patch into a
// new object. Complaints are unknown and duplicate fields. Errors are those of the decoder.
func UnmarshalStrict(data []byte, create func() runtime.Object) (o runtime.Object, complaints []string, err error) {
	o, errs, err := unmarshalStrict(data, create)
	for _, one := range errs {
		complaints = append(complaints, one.Error())
	}
	return o, complaints, err
}

// Unmarshal reads a stored value into a new object. Quantities that take too long to decode are bounded.
func Unmarshal(value []byte, create func() runtime.Object) (runtime.Object, error) {
	o := create()
	value = boundQuantities(value, reflect.TypeOf(o))
	if fastjson.Unmarshal(value, o) == nil {
		return o, nil
	}
	o = create()
	return o, json.Unmarshal(value, o)
}
