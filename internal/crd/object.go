package crd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Object is a custom resource. Kind, version and metadata are typed, since every verb needs
// them. The rest is a tree of JSON in which integers are int64.
type Object struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Members are all members but kind, apiVersion and metadata.
	Members map[string]any

	// tolerated are errors in unchanged values: see validateUpdate.
	tolerated []string
	// overgrown: the defaults for the object are larger than maxDefaults, and were not set.
	overgrown bool
}

// DeepCopyObject implements runtime.Object.
func (o *Object) DeepCopyObject() runtime.Object {
	next := &Object{TypeMeta: o.TypeMeta, Members: runtime.DeepCopyJSON(o.Members), overgrown: o.overgrown}
	o.ObjectMeta.DeepCopyInto(&next.ObjectMeta)
	return next
}

// MarshalJSON writes kind, apiVersion and metadata first, as stored objects have them, then the
// other members sorted by name.
func (o *Object) MarshalJSON() ([]byte, error) {
	metadata, err := json.Marshal(&o.ObjectMeta)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	kind, err := json.Marshal(o.Kind)
	if err != nil {
		return nil, err
	}
	version, err := json.Marshal(o.APIVersion)
	if err != nil {
		return nil, err
	}
	for _, part := range [][]byte{[]byte(`{"kind":`), kind, []byte(`,"apiVersion":`), version, []byte(`,"metadata":`), metadata} {
		b.Write(part)
	}
	if len(o.Members) > 0 {
		rest, err := json.Marshal(o.Members)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(rest, []byte("-0")) { // rarely, and maybe in a text
			if rest, err = json.Marshal(withoutNegativeZero(o.Members)); err != nil {
				return nil, err
			}
		}
		b.WriteByte(',')
		b.Write(rest[1 : len(rest)-1])
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// withoutNegativeZero returns a copy of a value in which negative zeros are zero. Kube-apiserver reads
// the integer 0 from the text "-0" that it stores for them.
func withoutNegativeZero(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[name] = withoutNegativeZero(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = withoutNegativeZero(item)
		}
		return out
	case float64:
		if v == 0 {
			return 0.0
		}
	}
	return value
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (o *Object) UnmarshalJSON(data []byte) error {
	var all map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &all); err != nil {
		return err
	}
	var head struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	// The faster decoder skips the other members.
	if fastjson.Unmarshal(data, &head, jsontext.AllowDuplicateNames(true)) != nil {
		head.Metadata = metav1.ObjectMeta{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &head); err != nil {
			return err
		}
	}
	return o.take(all, head.Metadata)
}

// take sets the object from all members and its metadata. It takes over the map.
func (o *Object) take(all map[string]any, metadata metav1.ObjectMeta) error {
	if all == nil {
		return errors.New("the object is null")
	}
	var err error
	text := func(name string) string {
		v, ok := all[name]
		s, isText := v.(string)
		if ok && !isText {
			err = fmt.Errorf("%s is not a string", name)
		}
		delete(all, name)
		return s
	}
	o.Kind, o.APIVersion = text("kind"), text("apiVersion")
	delete(all, "metadata")
	o.ObjectMeta, o.Members = metadata, all
	return err
}

// tree returns the object as schemas and CEL rules see it: of metadata, only the name and
// generateName.
func (o *Object) tree() map[string]any {
	all := make(map[string]any, len(o.Members)+3)
	maps.Copy(all, o.Members)
	metadata := map[string]any{}
	if o.Name != "" {
		metadata["name"] = o.Name
	}
	if o.GenerateName != "" {
		metadata["generateName"] = o.GenerateName
	}
	all["kind"], all["apiVersion"], all["metadata"] = o.Kind, o.APIVersion, metadata
	return all
}

// wholeMetadata returns the metadata for rules that compare all of it, without the members
// that every write changes.
func (o *Object) wholeMetadata() map[string]any {
	m := o.ObjectMeta
	m.ManagedFields, m.ResourceVersion = nil, ""
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	if err != nil { // plain data
		panic(err)
	}
	return all
}

func clearStatus(o runtime.Object) { delete(o.(*Object).Members, "status") }

func copyStatus(to, from runtime.Object) {
	status, ok := from.(*Object).Members["status"]
	if !ok {
		clearStatus(to)
		return
	}
	to.(*Object).Members["status"] = status
}

func sameButStatus(a, b runtime.Object) bool {
	return apiequality.Semantic.DeepEqual(without(a, "status"), without(b, "status"))
}

func sameStatus(a, b runtime.Object) bool {
	return apiequality.Semantic.DeepEqual(a.(*Object).Members["status"], b.(*Object).Members["status"])
}

func sameMembers(a, b runtime.Object) bool {
	return apiequality.Semantic.DeepEqual(a.(*Object).Members, b.(*Object).Members)
}

func without(o runtime.Object, member string) map[string]any {
	all := o.(*Object).Members
	if _, ok := all[member]; !ok {
		return all
	}
	rest := maps.Clone(all)
	delete(rest, member)
	return rest
}

// Shallow returns a copy that shares the values of its members.
func (o *Object) Shallow() runtime.Object {
	next := *o
	next.Members = maps.Clone(o.Members)
	return &next
}

// Tree returns the object as unstructured content. It shares memory with the object.
func (o *Object) Tree() map[string]any {
	all := make(map[string]any, len(o.Members)+3)
	maps.Copy(all, o.Members)
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.ObjectMeta)
	if err != nil { // plain data
		panic(err)
	}
	all["kind"], all["apiVersion"], all["metadata"] = o.Kind, o.APIVersion, metadata
	return all
}
