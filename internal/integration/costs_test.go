package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// withColumns returns the definition of things with printer columns of the given paths.
func withColumns(paths ...string) string {
	var columns []map[string]string
	for i, p := range paths {
		columns = append(columns, map[string]string{"name": fmt.Sprint("c", i), "type": "string", "jsonPath": p})
	}
	text, err := json.Marshal(columns)
	if err != nil {
		panic(err)
	}
	return strings.Replace(definition(`"x":{"type":"object","x-kubernetes-preserve-unknown-fields":true}`), `"storage":true,`, `"storage":true,"additionalPrinterColumns":`+string(text)+`,`, 1)
}

// TestHostileColumns makes definitions whose columns would end the process or take minutes. A path that
// is too long is refused; others have null where they take too much work.
func TestHostileColumns(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	for _, path := range []string{"." + strings.Repeat("$", 1_000_000), "." + strings.Repeat(" ", 1_000_000), "." + strings.Repeat("[0,0]", 300)} {
		wantRefused(t, c, definitions, withColumns(path), 422, `CustomResourceDefinition.apiextensions.k8s.io "things.example.com" is invalid: spec.versions[0].additionalPrinterColumns[0].jsonPath: Too long: may not be more than 1024 bytes`)
	}
	many := make([]string, 257)
	for i := range many {
		many[i] = ".spec"
	}
	if code, text := post(t, c, definitions, withColumns(many...)); code != 422 || !strings.Contains(string(text), "must have at most 256 items") {
		t.Errorf("%d %.300s", code, text)
	}
	deep := strings.Repeat(`{"x":`, 200) + "{}" + strings.Repeat("}", 200)
	run(t, c, []step{
		{"POST " + definitions, withColumns(".metadata.name", ".spec..x..x..x..x", ".spec.x.list"+strings.Repeat("[0,0]", 25), ".spec.x.list[0]"), 201, nil},
		{"POST " + things, thing("a", `{"x":{"x":`+deep+`,"list":[[[1]],2]}}`), 201, nil},
		{"TABLE " + things, "", 200, values{"rows.0.cells.1": `"a"`, "rows.0.cells.2": "null", "rows.0.cells.4": "null"}},
	})
}

// TestManyNames makes definitions whose short names and categories discovery would repeat for each of many versions.
func TestManyNames(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	names := func(member string, n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"n%05d"`, i)
		}
		return `"` + member + `":[` + strings.Join(all, ",") + "]"
	}
	var versions strings.Builder
	for i := range 99 {
		fmt.Fprintf(&versions, `,{"name":"v%d","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}`, i+2)
	}
	with := func(versions, names string) string {
		return strings.Replace(definition(`"x":{"type":"string"}`, versions), `"kind":"Thing"`, `"kind":"Thing",`+names, 1)
	}
	const tooMany = `CustomResourceDefinition.apiextensions.k8s.io "things.example.com" is invalid: spec.names: Forbidden: the short names and categories have 70000 bytes, repeated for each of the 100 versions; must have at most 65536`
	for _, member := range []string{"shortNames", "categories"} {
		wantRefused(t, c, definitions, with(versions.String(), names(member, 70)), 422, tooMany)
	}
	run(t, c, []step{
		{"POST " + definitions, with("", names("categories", 70)), 201, nil},
		{"MERGE " + definitions + "/things.example.com", fmt.Sprintf(`{"spec":%s}`, specOf(t, with(versions.String(), names("categories", 70)))), 422, nil},
		{"MERGE " + definitions + "/things.example.com", fmt.Sprintf(`{"spec":%s}`, specOf(t, with(versions.String(), names("categories", 60)))), 200, nil},
		{"MERGE " + definitions + "/things.example.com/status", fmt.Sprintf(`{"status":{"acceptedNames":{%s}}}`, names("categories", 70)), 422, nil},
	})
}

// specOf returns the spec of an object.
func specOf(t *testing.T, object string) string {
	t.Helper()
	var o struct{ Spec json.RawMessage }
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	return string(o.Spec)
}

// TestUnsupportedSchemas creates definitions with members of a schema that are not supported, beside selectable fields.
func TestUnsupportedSchemas(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	for _, member := range []string{"id", "$ref", "$schema"} {
		body := strings.NewReplacer(`"storage":true,`, `"storage":true,"selectableFields":[{"jsonPath":".spec.x"}],`, `"openAPIV3Schema":{`, `"openAPIV3Schema":{"`+member+`":"a",`).Replace(definition(`"x":{"type":"string"}`))
		if code, text := post(t, c, definitions, body); code != 422 || !strings.Contains(string(text), "not supported") {
			t.Errorf("%s: %d %.300s", member, code, text)
		}
	}
}

// TestLongPaths creates definitions with paths that are longer than the buffer of the library's parser.
func TestLongPaths(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	rule := func(path string) string {
		return definition(`"x":{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[{"rule":"true","fieldPath":"` + path + `"}]}`)
	}
	selectable := func(path string) string {
		return strings.Replace(definition(`"x":{"type":"string"}`), `"storage":true,`, `"storage":true,"selectableFields":[{"jsonPath":"`+path+`"}],`, 1)
	}
	for _, head := range []string{"", ".spec.x", ".spec.'a'"} {
		for _, n := range []int{1 << 10, 64<<10 - 1, 64 << 10, 128 << 10} {
			long := head + strings.Repeat("9", n)
			for _, one := range [][2]string{
				{selectable(long), "selectableFields[0].jsonPath: "},
				{rule(long), "properties[x].x-kubernetes-validations[0].fieldPath: "},
			} {
				if code, text := post(t, c, definitions, one[0]); code != 422 || !strings.Contains(string(text), one[1]) {
					t.Errorf("%.10s and %d bytes: %d %.300s", long, n, code, text)
				}
			}
		}
	}
	for _, body := range []string{selectable(".spec.x"), rule(".a")} {
		if code, text := post(t, c, definitions+"?dryRun=All", body); code != 201 {
			t.Errorf("%d %.300s", code, text)
		}
	}
}

// TestTableOfSmallObjects lists many small objects as a table, with columns that print the same string again and again: a row
// is not much larger than its object.
func TestTableOfSmallObjects(t *testing.T) {
	const rows, rowBytes = 30, 6 << 10
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	paths := slices.Repeat([]string{".spec.x.s"}, 250)
	run(t, c, []step{{"POST " + definitions, withColumns(append([]string{".metadata.name"}, paths...)...), 201, nil}})
	for i := range rows {
		run(t, c, []step{{"POST " + things, thing(fmt.Sprint("a", i), `{"x":{"s":"`+strings.Repeat("x", 250)+`"}}`), 201, nil}})
	}
	code, text := servertest.GetAs(t, c, things, "application/json;as=Table;g=meta.k8s.io;v=v1")
	if _, text, _ = strings.Cut(text, `"rows":`); code != 200 || strings.Count(text, `"cells":["a`) != rows || len(text) > rows*rowBytes {
		t.Errorf("%d, %d bytes: %.300s", code, len(text), text)
	}
}

// TestDefaultsMultiply creates objects whose defaults are gigabytes, and reads one that was stored before
// the definition had them.
func TestDefaultsMultiply(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	keys := make([]string, 300)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	items := func(more string) string {
		return `"list":{"type":"array","items":{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"string"}` + more + `}}}}`
	}
	withDefault := items(`,"default":{` + strings.Join(keys, ",") + `}`)
	empty := func(n int) string { return `{"list":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}` }
	const message = "the defaults of the definition add more than 3145728 bytes to the object"
	run(t, c, []step{
		{"POST " + definitions, definition(items("")), 201, nil},
		{"POST " + things, thing("old", empty(20_000)), 201, nil},
		{"POST " + things, thing("small", empty(1)), 201, nil},
		{"MERGE " + definitions + "/things.example.com", definition(withDefault), 200, nil},
		{"GET " + things + "/small", "", 200, values{"spec.list.0.m.k299": `"v"`}},
		{"GET " + things + "/old", "", 200, values{"spec.list.0": "{}"}},
	})
	for _, one := range [][2]string{{"POST", ""}, {"MERGE", "/small"}, {"APPLY", "/small?fieldManager=m&force=true"}, {"APPLY", "/new?fieldManager=m"}} {
		name := strings.TrimPrefix(strings.Split(one[1], "?")[0], "/")
		body := thing(name, empty(20_000))
		if name == "" {
			body = thing("new", empty(20_000))
		}
		if code, _, text := exchange(t, c, one[0], things+one[1], body); code != 422 || !strings.Contains(string(text), message) {
			t.Errorf("%s %s: %d %.300s", one[0], one[1], code, text)
		}
	}
	run(t, c, []step{
		{"MERGE " + things + "/old", `{"metadata":{"labels":{"a":"b"}}}`, 422, nil},
		{"MERGE " + things + "/old", `{"spec":{"list":[{}]}}`, 200, values{"spec.list.0.m.k0": `"v"`}},
		{"DELETE " + things + "/old", "", 200, nil},
	})
}

// TestHostilePatterns refuses patterns that are too large, and objects that take too long to match.
func TestHostilePatterns(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	pattern := func(p string, more string) string {
		return definition(`"s":{"type":"string","pattern":` + p + more + `},"l":{"type":"array","items":{"type":"string","anyOf":[{"pattern":` + p + `},{"pattern":"^x"}]}}`)
	}
	for _, one := range [][2]string{
		{pattern(`"(abcdefghijkl){1000}"`, ""), "must have at most 10000 instructions"},
		{pattern(`"(?i)[`+strings.Repeat("b-\U0001e942", 1000)+`]"`, ""), "the pattern has too many Unicode classes, or too many large ranges that ignore case"},
		{pattern(`"[`+strings.Repeat(`\\pL`, 1000)+`]"`, ""), "the pattern has too many Unicode classes, or too many large ranges that ignore case"},
		{definition(`"s":{"type":"string","maxLength":10,"x-kubernetes-validations":[{"rule":"self.matches('(?i)[` + strings.Repeat("b-\U0001e942", 1000) + `]')"}]}`), "the pattern has too many Unicode classes"},
		{pattern(`"^((((a{1,10}){1,10}){1,10})*)*$"`, `,"default":"`+strings.Repeat("a", 1<<20)+`"`), "the patterns are too large for defaults of this size"},
	} {
		if code, text := post(t, c, definitions, one[0]); code != 422 || !strings.Contains(string(text), one[1]) {
			t.Errorf("%d %.300s", code, text)
		}
	}
	run(t, c, []step{
		{"POST " + definitions, pattern(`"^((((a{1,10}){1,10}){1,10})*)*$"`, ""), 201, nil},
		{"POST " + things, thing("a", `{"s":"aaa","l":["aaa"]}`), 201, nil},
		{"POST " + things, thing("b", `{"s":"b"}`), 422, nil},
	})
	spec := `{"l":[` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("a", 50)+`",`, 20_000), ",") + `]}`
	if code, text := post(t, c, things, thing("b", spec)); code != 422 || !strings.Contains(string(text), "matching the patterns of the schema takes too much work") {
		t.Errorf("%d %.300s", code, text)
	}
}

// TestHostilePatternsInRules checks that neither rules of definitions nor policies match for long.
func TestHostilePatternsInRules(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const large = `'^((((a{1,10}){1,10}){1,10})*)*$'`
	const registration = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
	rule := func(text string) string {
		return `{"type":"string","maxLength":1000000,"x-kubernetes-validations":[{"rule":"` + text + `"}]}`
	}
	run(t, c, []step{
		{"POST " + definitions, definition(`"constant":` + rule("self.matches("+large+")") + `,"computed":` + rule("self.find(self.size() > 0 ? "+large+" : '') == self")), 201, nil},
		{"POST " + registration + "ies", `{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
			"validations":[{"expression":"object.data.all(k, object.data[k].matches(` + large + `))"}]}}`, 201, nil},
		{"POST " + registration + "ybindings", `{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"]}}`, 201, nil},
	})
	text := strings.Repeat("a", 20_000)
	for _, one := range []struct{ path, body, refused string }{
		{things, thing("a", `{"constant":"%s"}`), "call cost exceeds limit"},
		{things, thing("b", `{"computed":"%s"}`), "call cost exceeds limit"},
		{configMaps, `{"metadata":{"name":"c"},"data":{"a":"%s"}}`, "cost limit exceeded"},
	} {
		if code, body := post(t, c, one.path, strings.ReplaceAll(one.body, "%s", "aaa")); code != 201 {
			t.Errorf("%.100s: %d %.300s", one.body, code, body)
		}
		if code, body := post(t, c, one.path+"?dryRun=All", strings.ReplaceAll(one.body, "%s", text)); code != 422 || !strings.Contains(string(body), one.refused) {
			t.Errorf("%.100s: a long text: %d %.300s", one.body, code, body)
		}
	}
}

// TestCostlyExpressions sends expressions that would take seconds to hours to check, wherever the API has one.
func TestCostlyExpressions(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const (
		tooLong = "the expression takes too long to check"
		policy  = `{"metadata":{"name":"z"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["pods"]}]},%s}}`
		hooks   = `{"metadata":{"name":"z"},"webhooks":[{"name":"z.example.com","clientConfig":{"url":"https://127.0.0.1:1"},"sideEffects":"None","admissionReviewVersions":["v1"],"matchConditions":[{"name":"a","expression":%s}]}]}`
		claim   = `{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"x","selectors":[{"cel":{"expression":%s}}]}}]}}`
		devices = "/apis/resource.k8s.io/v1"
	)
	validations := func(text string) string { return fmt.Sprintf(policy, text) }
	places := []struct{ url, body, field string }{
		{admissionPath + "/validatingadmissionpolicies", validations(`"validations":[{"expression":%s}]`), "spec.validations[0].expression"},
		{admissionPath + "/validatingadmissionpolicies", validations(`"validations":[{"expression":"true"}],"variables":[{"name":"v","expression":%s}]`), "spec.variables[0].expression"},
		{admissionPath + "/validatingadmissionpolicies", validations(`"validations":[{"expression":"true"}],"matchConditions":[{"name":"a","expression":%s}]`), "spec.matchConditions[0].expression"},
		{admissionPath + "/validatingadmissionpolicies", validations(`"validations":[{"expression":"true","messageExpression":%s}]`), "spec.validations[0].messageExpression"},
		{admissionPath + "/validatingadmissionpolicies", validations(`"auditAnnotations":[{"key":"k","valueExpression":%s}]`), "spec.auditAnnotations[0].valueExpression"},
		{admissionPath + "/mutatingadmissionpolicies", validations(`"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":%s}}]`), "spec.mutations[0].jsonPatch.expression"},
		{admissionPath + "/validatingwebhookconfigurations", hooks, "webhooks[0].matchConditions[0].expression"},
		{admissionPath + "/mutatingwebhookconfigurations", hooks, "webhooks[0].matchConditions[0].expression"},
		{devices + "/namespaces/default/resourceclaims", `{"metadata":{"name":"z"},"spec":` + claim + `}`, "spec.devices.requests[0].exactly.selectors[0].cel.expression"},
		{devices + "/namespaces/default/resourceclaimtemplates", `{"metadata":{"name":"z"},"spec":{"spec":` + claim + `}}`, "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression"},
		{devices + "/deviceclasses", `{"metadata":{"name":"z"},"spec":{"selectors":[{"cel":{"expression":%s}}]}}`, "spec.selectors[0].cel.expression"},
		{definitions, strings.ReplaceAll(definition(`"x":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"RULE"}]}}`), `"RULE"`, "%s"), "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[x].items.x-kubernetes-validations[0].rule"},
		{definitions, strings.ReplaceAll(definition(`"x":{"type":"string","x-kubernetes-validations":[{"rule":"true","messageExpression":"RULE"}]}`), `"RULE"`, "%s"), "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[x].x-kubernetes-validations[0].messageExpression"},
	}
	for name, expression := range map[string]string{
		"nested lists": "size(" + nested(240) + ") == 0",
		"macros":       "[1]" + strings.Repeat(".map(a, {a: a})", 40) + " == []",
		"comparisons":  strings.TrimSuffix(strings.Repeat("1==1&&", 850), "&&"),
	} {
		quoted, err := json.Marshal(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range places {
			code, text := post(t, c, p.url, strings.Replace(p.body, "%s", string(quoted), 1))
			var s struct {
				Details struct {
					Causes []struct{ Reason, Message, Field string }
				}
			}
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			found := false
			for _, cause := range s.Details.Causes {
				found = found || cause.Field == p.field && cause.Reason == "FieldValueInvalid" && strings.Contains(cause.Message, tooLong)
			}
			if code != 422 || !found {
				t.Errorf("%s in %s of %s: %d %.600s", name, p.field, p.url, code, text)
			}
		}
	}
	// The errors do not quote each line of an expression with many errors.
	many, err := json.Marshal(strings.TrimSuffix(strings.Repeat("missing || ", 400), "|| "))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		code, text := post(t, c, p.url, strings.Replace(p.body, "%s", string(many), 1))
		if code != 422 || len(text) > 64<<10 || !strings.Contains(string(text), "undeclared reference to 'missing'") || !strings.Contains(string(text), "95 more errors") {
			t.Errorf("many errors in %s of %s: %d, %d bytes: %.600s", p.field, p.url, code, len(text), text)
		}
	}
	// The expressions of an object are bounded together.
	var selectors []string
	for i := range 20 {
		selectors = append(selectors, fmt.Sprintf(`{"cel":{"expression":"%s == %d"}}`, strings.Repeat("1==1&&", 700)+"1", i))
	}
	for _, p := range places[8:11] {
		body := strings.Replace(p.body, `{"cel":{"expression":%s}}`, strings.Join(selectors, ","), 1)
		if code, text := post(t, c, p.url, body); code != 422 || !strings.Contains(string(text), "the expressions of the object take too long to check together") {
			t.Errorf("20 selectors of %s: %d %.600s", p.url, code, text)
		}
	}
	texts := make([]string, 20)
	for i := range texts {
		texts[i] = fmt.Sprintf(`{"expression":"%s == %d"}`, strings.Repeat("1==1&&", 700)+"1", i)
	}
	if code, text := post(t, c, places[0].url, validations(`"validations":[`+strings.Join(texts, ",")+`]`)); code != 422 || !strings.Contains(string(text), "the expressions of the object take too long to check together") {
		t.Errorf("20 expressions: %d %.600s", code, text)
	}
}
