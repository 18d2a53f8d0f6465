package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// chained returns an expression that is true if %s is for x, the start after n steps of a map.
func chained(start, step string, n int, last string) string {
	return "[" + start + "]" + strings.Repeat(".map(x, "+step+")", n) + ".all(x, " + last + ")"
}

// largeValues are expressions whose values have parts that are reachable in millions of ways, or that make texts of
// gigabytes. Their costs are small.
var largeValues = map[string]string{
	"equal lists":       chained("dyn(1)", "dyn([x, x])", 24, "x == x"),
	"unequal maps":      "!" + chained("dyn(1)", "dyn({'a': x, 'b': x})", 24, "x != x"),
	"optional":          chained("dyn(1)", "dyn([x, x])", 24, "optional.of(x) == optional.of(x)"),
	"in a list":         chained("dyn(1)", "dyn([x, x])", 24, "x in [x]"),
	"index":             chained("dyn(1)", "dyn([x, x])", 24, "[x].indexOf(x) == 0"),
	"sets":              chained("dyn(1)", "dyn([x, x])", 24, "sets.equivalent([x], [x])"),
	"distinct":          chained("dyn(1)", "dyn([x, x])", 24, "[x, x].distinct().size() > 0"),
	"flatten":           chained("dyn(1)", "dyn([x, x])", 24, "[x].flatten(25).size() > 0"),
	"format":            chained("dyn(1)", "dyn([x, x])", 24, "'%s'.format([x]).size() > 0"),
	"long list":         chained("[1]", "x + x", 24, "x == x"),
	"texts":             chained("dyn('aaaaaaaaaaaaaaaaaaaa')", "dyn(x + x)", 24, "x != ''"),
	"one text in lists": chained("dyn(object.s)", "dyn([x, x])", 8, "'%s'.format([x]).size() > 0"),
	"replace":           "object.s.replace('', object.s).size() > 0",
	"format of texts":   "'" + strings.Repeat("%s", 400) + "'.format([" + strings.TrimSuffix(strings.Repeat("object.s,", 400), ",") + "]).size() > 0",
}

// TestLargeValues evaluates them as rules of a definition and in policies, and converts such values to patches.
func TestLargeValues(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	quote := func(text string) string {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(quoted)
	}
	large := strings.Repeat("a", 100_000)
	run(t, c, []step{{"POST " + admissionPath + "/validatingadmissionpolicybindings", `{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"]}}`, 201, nil}})
	const match = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["configmaps"]}]}`
	for name, text := range largeValues {
		rule := `"x":{"type":"object","properties":{"s":{"type":"string","maxLength":100000}},"x-kubernetes-validations":[{"rule":` + quote(strings.ReplaceAll(text, "object.", "self.")) + `}]}`
		if code, text := post(t, c, definitions+"?dryRun=All", definition(rule)); code == 201 { // others cost too much by the estimate
			run(t, c, []step{{"POST " + definitions, definition(rule), 201, nil}})
			if code, text := post(t, c, things, thing("a", `{"x":{"s":"`+large+`"}}`)); code != 422 || !strings.Contains(string(text), "cost") {
				t.Errorf("%s: a rule: %d %.300s", name, code, text)
			}
			run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
		} else if !strings.Contains(string(text), "estimated rule cost") {
			t.Errorf("%s: the definition: %d %.300s", name, code, text)
		}
		policy := `{"metadata":{"name":"p"},"spec":{` + match + `,"validations":[{"expression":` + quote(strings.ReplaceAll(text, "object.s", "object.data.s")) + `}]}}`
		run(t, c, []step{{"POST " + admissionPath + "/validatingadmissionpolicies", policy, 201, nil}})
		if code, text := post(t, c, configMaps+"?dryRun=All", `{"metadata":{"name":"c"},"data":{"s":"`+large+`"}}`); code != 422 || !strings.Contains(string(text), "cost") {
			t.Errorf("%s: a policy: %d %.300s", name, code, text)
		}
		run(t, c, []step{{"DELETE " + admissionPath + "/validatingadmissionpolicies/p", "", 200, nil}})
	}
	run(t, c, []step{{"POST " + admissionPath + "/mutatingadmissionpolicybindings", `{"metadata":{"name":"m"},"spec":{"policyName":"m"}}`, 201, nil}})
	var variables []string
	last := "dyn('a')"
	for i := range 24 {
		variables = append(variables, fmt.Sprintf(`{"name":"v%d","expression":"[%s, %s]"}`, i, last, last))
		last = fmt.Sprintf("variables.v%d", i)
	}
	for name, mutation := range map[string]string{
		"a patch":         `{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/data', value: ` + last + `}]"}}`,
		"many patches":    `{"patchType":"JSONPatch","jsonPatch":{"expression":"` + last + `.map(x, JSONPatch{op: 'add', path: '/data', value: ` + last + `})"}}`,
		"a configuration": `{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{data: ` + last + `}"}}`,
	} {
		policy := `{"metadata":{"name":"m"},"spec":{` + match + `,"reinvocationPolicy":"Never","variables":[` + strings.Join(variables, ",") + `],"mutations":[` + mutation + `]}}`
		run(t, c, []step{{"POST " + admissionPath + "/mutatingadmissionpolicies", policy, 201, nil}})
		if code, text := post(t, c, configMaps+"?dryRun=All", `{"metadata":{"name":"c"}}`); code != 422 && code != 403 || !strings.Contains(string(text), "the patch would be larger than 3145728 bytes") {
			t.Errorf("%s: %d %.300s", name, code, text)
		}
		run(t, c, []step{{"DELETE " + admissionPath + "/mutatingadmissionpolicies/m", "", 200, nil}})
	}
}
