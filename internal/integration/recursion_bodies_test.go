package integration_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	asCBOR     = "application/cbor"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// protobufBody returns the body of a request with a message in protobuf.
func protobufBody(apiVersion, kind string, raw []byte) string {
	meta := protowire.AppendString([]byte{1<<3 | 2}, apiVersion)
	meta = protowire.AppendString(append(meta, 2<<3|2), kind)
	body := protowire.AppendBytes([]byte("k8s\x00\x0a"), meta)
	return string(protowire.AppendBytes(append(body, 2<<3|2), raw))
}

// inFields returns a message with b in a field, in a field, and so on, the innermost one first.
func inFields(b []byte, fields ...protowire.Number) []byte {
	for _, f := range fields {
		b = protowire.AppendBytes(protowire.AppendTag(nil, f, protowire.BytesType), b)
	}
	return b
}

// deepMessage returns a message that contains itself, depth times, in fields, the innermost one first. Each has the bytes of
// with in addition, and the innermost those of last. The lengths come first, so it is made from the inside, backwards.
func deepMessage(depth int, last, with []byte, fields ...protowire.Number) []byte {
	backwards, with := reversed(last), reversed(with)
	for range depth {
		for _, f := range fields {
			head := protowire.AppendVarint(protowire.AppendTag(nil, f, protowire.BytesType), uint64(len(backwards)))
			slices.Reverse(head)
			backwards = append(backwards, head...)
		}
		backwards = append(backwards, with...)
	}
	slices.Reverse(backwards)
	return backwards
}

// deepProperties returns the schema of an object with the property x, depth times.
func deepProperties(depth int, last, with []byte) []byte {
	// The key comes before the value in an entry of the map.
	backwards, with := reversed(last), reversed(with)
	head := func(f protowire.Number) {
		b := protowire.AppendVarint(protowire.AppendTag(nil, f, protowire.BytesType), uint64(len(backwards)))
		backwards = append(backwards, reversed(b)...)
	}
	for range depth {
		head(2)
		backwards = append(backwards, reversed([]byte("\x0a\x01x"))...)
		head(29)
		backwards = append(backwards, with...)
	}
	return reversed(backwards)
}

func reversed(b []byte) []byte {
	b = slices.Clone(b)
	slices.Reverse(b)
	return b
}

// protobufOf returns the body of a request with an object in protobuf, which more is appended to.
func protobufOf(t *testing.T, apiVersion, kind string, o interface{ Marshal() ([]byte, error) }, more []byte) string {
	t.Helper()
	b, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return protobufBody(apiVersion, kind, append(b, more...))
}

// cborThing returns a Thing in CBOR, with a value in its spec.
func cborThing(value string) string {
	return "\xa4\x6aapiVersion\x6eexample.com/v1\x64kind\x65Thing\x68metadata\xa1\x64name\x61z\x64spec\xa1\x61x" + value
}

// asn1 returns a certificate request whose sequences are nested.
func asn1(depth int) string {
	var backwards []byte
	for range min(depth, 10_000) {
		n := len(backwards)
		backwards = append(backwards, byte(n), byte(n>>8), byte(n>>16), 0x83, 0x30)
	}
	slices.Reverse(backwards)
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: backwards}))
}

// deepBodies returns requests whose bodies, in other formats than JSON, and whose expressions, are nested.
func deepBodies(t *testing.T, depth int) map[string]call {
	const (
		dry        = "?dryRun=All"
		definition = "apiextensions.k8s.io/v1"
		policies   = admissionPath + "/validatingadmissionpolicies" + dry
		claims     = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims" + dry
		reviews    = "/apis/authentication.k8s.io/v1/tokenreviews"
	)
	quoted := func(text string) string {
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	n, literals := min(depth, 5_000), min(depth/8, 5_000)
	levels := depth/2 - 8 // each takes two of the 512 levels of a body
	lists, objects := strings.Repeat("\x81", depth)+"\x80", strings.Repeat("\xa1\x61x", depth)+"\xa0"
	groups := append(bytes.Repeat([]byte{15<<3 | 3}, depth), bytes.Repeat([]byte{15<<3 | 4}, depth)...)
	type object = metav1.ObjectMeta
	named := object{Name: "z", Namespace: "default"}
	isString, isArray, isObject := []byte("\x2a\x06string"), []byte("\x2a\x05array"), []byte("\x2a\x06object")
	// schema has s as spec.versions[0].schema.openAPIV3Schema.properties[x].
	schema := func(s []byte) string {
		others := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: object{Name: "others.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: "Namespaced", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "others", Kind: "Other"},
		}}
		entry := append([]byte("\x0a\x01x"), inFields(s, 2)...)
		version := append([]byte("\x0a\x02v1\x10\x01\x18\x01"), inFields(append(slices.Clone(isObject), inFields(entry, 29)...), 1, 4)...)
		return protobufOf(t, definition, "CustomResourceDefinition", others, inFields(version, 7, 2))
	}
	fields := []byte(strings.Repeat(`{"f:a":`, depth) + "{}" + strings.Repeat("}", depth))
	managed := &corev1.ConfigMap{ObjectMeta: object{Name: "z", Namespace: "default", ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: "m", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
	}}}}
	revision := &appsv1.ControllerRevision{ObjectMeta: named, Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"a":` + nested(depth) + "}")}}
	configMap := func(more []byte) string {
		return protobufOf(t, "v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: named}, more)
	}
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","x":` + nested(min(depth, 100_000)) + `}`))
	all := map[string]call{
		"lists in CBOR":                 {"POST", things + dry, asCBOR, cborThing(lists)},
		"objects in CBOR":               {"POST", things + dry, asCBOR, cborThing(objects)},
		"tags in CBOR":                  {"POST", things + dry, asCBOR, cborThing(strings.Repeat("\xd9\xd9\xf7", depth) + "\x01")},
		"lists without length in CBOR":  {"POST", things + dry, asCBOR, cborThing(strings.Repeat("\x9f", depth) + strings.Repeat("\xff", depth))},
		"keys in CBOR":                  {"POST", things + dry, asCBOR, cborThing(strings.Repeat("\xa1", depth) + "\x01")},
		"an apply in CBOR":              {"PATCH", things + "/z" + dry + "&fieldManager=m", "application/apply-patch+cbor", cborThing(objects)},
		"options in CBOR":               {"DELETE", things + "/none", asCBOR, lists},
		"items in protobuf":             {"POST", definitions + dry, asProtobuf, schema(deepMessage(levels, isString, isArray, 1, 24))},
		"properties in protobuf":        {"POST", definitions + dry, asProtobuf, schema(deepProperties(levels, isString, isObject))},
		"negations in protobuf":         {"POST", definitions + dry, asProtobuf, schema(append(slices.Clone(isString), deepMessage(levels, nil, nil, 28)...))},
		"lists in JSON in protobuf":     {"POST", definitions + dry, asProtobuf, schema(append([]byte("\x2a\x06object\xb0\x02\x01"), inFields([]byte(`{"a":`+nested(depth)+"}"), 1, 8)...))},
		"data in protobuf":              {"POST", "/apis/apps/v1/namespaces/default/controllerrevisions" + dry, asProtobuf, protobufOf(t, "apps/v1", "ControllerRevision", revision, nil)},
		"managed fields in protobuf":    {"POST", configMaps + dry, asProtobuf, protobufOf(t, "v1", "ConfigMap", managed, nil)},
		"groups in protobuf":            {"POST", configMaps + dry, asProtobuf, configMap(groups)},
		"groups without end":            {"POST", configMaps + dry, asProtobuf, configMap(groups[:depth])},
		"unknown messages in protobuf":  {"POST", configMaps + dry, asProtobuf, configMap(deepMessage(depth, nil, nil, 15))},
		"groups in the envelope":        {"POST", configMaps + dry, asProtobuf, "k8s\x00" + string(groups)},
		"options in protobuf":           {"DELETE", configMaps + "/none", asProtobuf, protobufBody("v1", "DeleteOptions", groups)},
		"sequences in YAML":             {"POST", things + dry, "application/yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: z}\nspec:\n  x:\n    " + strings.Repeat("- ", depth) + "1\n"},
		"keys in YAML":                  {"POST", things + dry, "application/yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: z}\nspec: {x: " + strings.Repeat("{? ", n) + "1" + strings.Repeat("}", n) + "}\n"},
		"managed fields":                {"POST", configMaps + dry, asJSON, `{"metadata":{"name":"z","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":` + strings.Repeat(`{"f:a":`, depth) + "{}" + strings.Repeat("}", depth) + `}]}}`},
		"a path of a copy":              {"PATCH", things + "/base" + dry, asJSONPatch, `[{"op":"copy","from":"` + strings.Repeat("/x", depth) + `","path":"/spec"}]`},
		"a test of a JSON patch":        {"PATCH", things + "/base" + dry, asJSONPatch, `[{"op":"test","path":"/spec","value":` + nested(depth) + `}]`},
		"a field selector":              {"GET", configMaps + "?fieldSelector=" + url.QueryEscape(strings.Repeat(`\`, n)+"="), "", ""},
		"a label selector of sets":      {"GET", configMaps + "?labelSelector=" + url.QueryEscape("a in "+strings.Repeat("(", n)+strings.Repeat(")", n)), "", ""},
		"a continue token":              {"GET", configMaps + "?limit=1&continue=" + token, "", ""},
		"a token":                       {"POST", reviews, asJSON, `{"spec":{"token":"` + token + "." + token + `.x"}}`},
		"a certificate request":         {"POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests" + dry, asJSON, `{"metadata":{"name":"z"},"spec":{"request":"` + asn1(depth) + `","signerName":"example.com/s","usages":["client auth"]}}`},
		"a schema with a list of types": {"POST", definitions + dry, asJSON, withSchema(strings.Repeat(`{"allOf":[`, depth/2) + "{}" + strings.Repeat("]}", depth/2))},
		"a default":                     {"POST", definitions + dry, asJSON, withSchema(`{"type":"object","x-kubernetes-preserve-unknown-fields":true,"default":{"a":` + nested(depth) + `}}`)},
	}
	for name, expression := range map[string]string{
		"parentheses": strings.Repeat("(", n) + "true" + strings.Repeat(")", n),
		"lists":       "size(" + nested(literals) + ") == 0",
		"maps":        "size(" + strings.Repeat("{1:", literals) + "{}" + strings.Repeat("}", literals) + ") == 1",
		"members":     "has(object" + strings.Repeat(".a", n) + ")",
		"indexes":     "object" + strings.Repeat("['a']", n) + " == 1",
		"negations":   strings.Repeat("!", n) + "true",
		"signs":       strings.Repeat("- ", n) + "1 == 1",
		"conditions":  strings.Repeat("true ? true : ", n) + "true",
		"calls":       strings.Repeat("size(", n) + "'a'" + strings.Repeat(")", n) + " == 1",
		"methods":     "'a'" + strings.Repeat(".trim()", n) + " == 'a'",
		"sums":        "1" + strings.Repeat(" + 1", n) + " == 1",
		"macros":      strings.Repeat("[1].all(x, ", n) + "true" + strings.Repeat(")", n),
		"a pattern":   "'a'.matches('" + strings.Repeat("(", n) + "a" + strings.Repeat(")", n) + "')",
	} {
		all["a policy with "+name] = call{"POST", policies, asJSON, `{"metadata":{"name":"z"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["pods"]}]},"validations":[{"expression":` + quoted(expression) + `}]}}`}
		all["a claim with "+name] = call{"POST", claims, asJSON, `{"metadata":{"name":"z"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"x","selectors":[{"cel":{"expression":` + quoted(strings.ReplaceAll(expression, "object", "device.attributes")) + `}}]}}]}}}`}
		all["a definition with "+name] = call{"POST", definitions + dry, asJSON, withSchema(`{"type":"object","x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":` + quoted(strings.ReplaceAll(expression, "object", "self")) + `}]}`)}
	}
	return all
}

// withSchema returns the definition of other things, with the schema of a field.
func withSchema(schema string) string {
	return strings.NewReplacer("things.example.com", "others.example.com", `"things"`, `"others"`, `"Thing"`, `"Other"`).Replace(definition(`"x":` + schema))
}
