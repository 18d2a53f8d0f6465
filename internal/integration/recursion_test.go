package integration_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// smallStack names the variable of a process whose goroutines have small stacks.
const smallStack = "TIDEMARK_TEST_SMALL_STACK"

// maxStack is the size of a stack there: a 128th of Go's limit.
const maxStack = 8 << 20

// TestDeepestInputs sends the deepest inputs that the server accepts, and deeper ones, to a server whose
// stacks are small. A stack overflow ends the process, so the server runs in one of its own. docs/limits.md
// lists the recursions.
func TestDeepestInputs(t *testing.T) {
	if os.Getenv(smallStack) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeepestInputs$", "-test.v")
		c.Env = append(os.Environ(), smallStack+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestDeepestInputs") {
			t.Errorf("%v\n%.4000s", err, out)
		}
		return
	}
	debug.SetMaxStack(maxStack)
	c := servertest.Start(t, &tidemark.Server{FeatureGates: map[string]bool{"CBORServingAndStorage": true}}).RESTConfig()
	h := servertest.Client(t, c)
	run(t, c, []step{{"POST " + definitions, withColumns(".metadata.name", ".spec..x", "."+strings.Repeat("$", 1023), ".spec"+strings.Repeat("[?(@", 200)), 201, nil}})
	lists := func(depth int) string { return `{"x":{"a":` + nested(depth) + `}}` }
	objects := func(depth int) string {
		return `{"x":` + strings.Repeat(`{"x":`, depth) + "{}" + strings.Repeat("}", depth) + "}"
	}
	schema := func(depth int) string {
		inner := strings.Repeat(`{"type":"object","properties":{"x":`, depth) + `{"type":"string"}` + strings.Repeat("}}", depth)
		return strings.NewReplacer("things.example.com", "deeps.example.com", `"things"`, `"deeps"`, `"Thing"`, `"Deep"`).Replace(definition(`"x":` + inner))
	}
	pattern := func(p string) string {
		return strings.NewReplacer("things.example.com", "pats.example.com", `"things"`, `"pats"`, `"Thing"`, `"Pat"`).Replace(definition(`"x":{"type":"string","pattern":"` + p + `"}`))
	}
	rule := func(expression string) string {
		text, err := json.Marshal(expression)
		if err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer("things.example.com", "rules.example.com", `"things"`, `"rules"`, `"Thing"`, `"Rule"`).Replace(
			definition(`"x":{"type":"string","x-kubernetes-validations":[{"rule":` + string(text) + `}]}`))
	}
	run(t, c, []step{{"POST " + configMaps, `{"metadata":{"name":"base"}}`, 201, nil}})
	depths := []int{240, 500, 100_000}
	if tier.IsFull(t) {
		depths = []int{100, 240, 480, 500, 600, 5_000, 500_000}
	}
	accepted := map[string]bool{}
	for _, depth := range depths {
		run(t, c, []step{{"POST " + things, thing("base", "{}"), 201, nil}})
		object := thing("a", lists(depth))
		members := thing("a", objects(depth))
		calls := map[string]call{
			"JSON":                {"POST", things, asJSON, object},
			"JSON objects":        {"POST", things, asJSON, strings.Replace(members, `"a"`, `"b"`, 1)},
			"YAML":                {"POST", things, "application/yaml", strings.Replace(object, `"a"`, `"c"`, 1)},
			"a merge patch":       {"PATCH", things + "/base", asMerge, `{"spec":` + lists(depth) + `}`},
			"a merge of objects":  {"PATCH", things + "/base", asMerge, `{"spec":` + objects(depth) + `}`},
			"a strategic patch":   {"PATCH", configMaps + "/base", asStrategic, `{"x":` + lists(depth) + `}`},
			"a JSON patch":        {"PATCH", things + "/base", asJSONPatch, `[{"op":"add","path":"/spec","value":` + lists(depth) + `}]`},
			"a path":              {"PATCH", things + "/base", asJSONPatch, `[{"op":"add","path":"` + strings.Repeat("/x", depth) + `","value":1}]`},
			"an apply":            {"PATCH", things + "/base?fieldManager=m&force=true", asApply, thing("base", objects(depth))},
			"options":             {"DELETE", things + "/none", asJSON, lists(depth)},
			"a schema":            {"POST", definitions + "?dryRun=All", asJSON, schema(depth / 2)},
			"a pattern":           {"POST", definitions + "?dryRun=All", asJSON, pattern(strings.Repeat("(", depth) + strings.Repeat(")", depth))},
			"a rule":              {"POST", definitions + "?dryRun=All", asJSON, rule(strings.Repeat("(", depth/4) + "true" + strings.Repeat(")", depth/4))},
			"a rule of lists":     {"POST", definitions + "?dryRun=All", asJSON, rule("size(" + nested(depth/4) + ") == 0")},
			"a rule of negations": {"POST", definitions + "?dryRun=All", asJSON, rule(strings.Repeat("!", min(depth, 1_000)) + "true")},
			"a rule of operators": {"POST", definitions + "?dryRun=All", asJSON, rule("true" + strings.Repeat(" || true", min(depth, 1_000)))},
			"a column":            {"POST", definitions + "?dryRun=All", asJSON, withColumns("." + strings.Repeat("$", depth))},
			"a selector":          {"GET", things + "?labelSelector=" + strings.Repeat("(", min(depth, 5_000)), "", ""},
		}
		maps.Copy(calls, deepBodies(t, depth))
		for name, one := range calls {
			one.url = c.Host + one.url
			resp := one.send(t, h)
			resp.Body.Close()
			if resp.StatusCode == http.StatusInternalServerError {
				t.Errorf("%s of depth %d: %d", name, depth, resp.StatusCode)
			}
			if resp.StatusCode < 300 {
				accepted[name] = true
			}
		}
		for _, accept := range []string{asJSON, "application/yaml", asCBOR, "application/json;as=Table;g=meta.k8s.io;v=v1"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+things, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", accept)
			resp, err := h.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s after depth %d: %d", accept, depth, resp.StatusCode)
			}
		}
		exchange(t, c, "DELETE", things, "")
	}
	for _, name := range []string{
		"objects in CBOR", "an apply in CBOR", "managed fields", "an apply", "a schema", "items in protobuf", "properties in protobuf", "data in protobuf",
		"managed fields in protobuf", "lists in JSON in protobuf", "unknown messages in protobuf", "a policy with lists", "a claim with maps", "a definition with lists",
	} {
		if !accepted[name] {
			t.Errorf("%s was never accepted", name)
		}
	}
	if len(accepted) < 40 {
		t.Errorf("only %d inputs were accepted: %q", len(accepted), slices.Sorted(maps.Keys(accepted)))
	}
}
