package crds

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// ruled returns the schema of objects with one member that has rules.
func ruled(member string, rules ...tree) string {
	all := []any{}
	for _, r := range rules {
		all = append(all, r)
	}
	s := tree{}
	if err := json.Unmarshal([]byte(member), &s); err != nil {
		panic(err)
	}
	s["x-kubernetes-validations"] = all
	return marshal(tree{"type": "object", "properties": tree{"spec": tree{"type": "object", "properties": tree{"v": s}}}})
}

func said(rule string) tree { return tree{"rule": rule} }

// nested is a rule with n nested macros.
func nested(macro string, n int) string {
	rule := "true"
	if macro == "map" {
		rule = "x0"
	}
	for i := range n {
		rule = fmt.Sprintf("self.%s(x%d, %s)", macro, i, rule)
	}
	if macro == "map" {
		rule += ".size() > 0"
	}
	return rule
}

func many(n int, rule string) (all []tree) {
	for i := range n {
		all = append(all, said(strings.ReplaceAll(rule, "#", fmt.Sprint(i))))
	}
	return all
}

const (
	unbound = `{"type":"string"}`
	list    = `{"type":"array","items":{"type":"string"}}`
	numbers = `{"type":"array","maxItems":1000,"items":{"type":"integer"}}`
	fewer   = `{"type":"array","maxItems":700,"items":{"type":"integer"}}`
	words   = `{"type":"array","maxItems":4000,"items":{"type":"string","maxLength":400}}`
	word    = `{"type":"string","maxLength":1}`
	large   = `{"type":"string","maxLength":3000000}`
)

// The errors of kube-apiserver 1.37 for rules that may cost too much.
const (
	advice  = " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
	hundred = "estimated rule cost exceeds budget by factor of more than 100x" + advice
	whole   = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of "
)

// hostileDefinitions are rejected because of the estimated cost of their rules.
var hostileDefinitions = []struct{ name, schema, want string }{
	{"all of all", ruled(list, said("self.all(x, self.all(y, x == y))")), hundred},
	{"five deep", ruled(numbers, said(nested("all", 5))), hundred},
	{"map three deep", ruled(numbers, said(nested("map", 3))), hundred},
	{"filter and count", ruled(numbers, said("self.filter(x, self.exists_one(y, self.all(z, x + y > z))).size() > 0")), hundred},
	{"a pattern on any text", ruled(unbound, said("self.matches('^(a+)+(b|c|d|e|f|g|h|i|j|k)*"+strings.Repeat("x", 200)+"$')")), "estimated rule cost exceeds budget by factor of 1.8x" + advice},
	{"texts that grow", ruled(list, said("self.map(x, self.map(y, x + y)).size() > 0")), hundred},
	{"replaced again and again", ruled(large, said("self"+strings.Repeat(".replace('a','aaaaaaaa')", 8)+" != ''")), hundred},
	{"a message", ruled(list, tree{"rule": "self.size() > 0", "messageExpression": "self.map(x, self.map(y, x + y).join()).join()"}), "estimated messageExpression cost exceeds budget by factor of more than 100x" + advice},
	{"many", ruled(numbers, many(60, "self.all(x, self.exists(y, y == x + #))")...), whole + "4.2x" + advice},
	{"long", ruled(word, said("self != '"+strings.Repeat("x", 200_000)+"'")), "expression code point size exceeds limit"},
	{"brackets", ruled(word, said(strings.Repeat("(", 300)+"true"+strings.Repeat(")", 300))), "expression recursion limit exceeded: 250"},
	{"a sum", ruled(word, said("self.size() < "+strings.Repeat("1+", 5000)+"1")), "compilation failed"},
	{"a pattern too large", ruled(word, said("self.matches('(a{1000}){1000}')")), "invalid matches argument"},
}

// TestHostileDefinitions: rules that may cost too much are refused with the definition,
// in the same words everywhere.
func TestHostileDefinitions(t *testing.T) {
	tier.Full(t)
	for _, h := range hostileDefinitions {
		t.Run(h.name, func(t *testing.T) {
			first := ""
			corners(t, func(c *corner) {
				got := c.must(http.StatusUnprocessableEntity, request{"POST", definitions + "?dryRun=All", "", c.body(h.schema, false)})
				text := got.verdict().text()
				if !strings.Contains(text, h.want) {
					c.t.Errorf("%.2000s\nwant %s", text, h.want)
				}
				if first == "" {
					first = text
				}
				if text != first {
					c.t.Errorf("%.2000s\nwhere the other says %.2000s", text, first)
				}
			})
		})
	}
}

// repeated is a list of n equal values.
func repeated(n int, v any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func counted(n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = float64(i)
	}
	return all
}

const (
	callOut = "operation cancelled: actual cost limit exceeded"
	runOut  = "validation failed due to running out of cost budget, no further validation rules will be run"
)

// hostileObjects are of definitions that look harmless, and cost more than the whole
// budget, or just less. Want is empty for those that are right.
var hostileObjects = []struct {
	name, schema string
	value        any
	want         string
}{
	{"just less", ruled(numbers, said("self.all(x, self.exists(y, y == x))")), counted(200), ""},
	{"each of many", ruled(words, many(12, "self.all(x, !x.contains('y#"+strings.Repeat("y", 52)+"'))")...), repeated(4000, strings.Repeat("x", 400)), runOut},
	{"patterns", ruled(words, said("self.all(x, x.matches('^(x+x+)+y?$'))")), repeated(4000, strings.Repeat("x", 400)), ""},
	{"items", ruled(`{"type":"array","maxItems":4000,"items":{"type":"string","maxLength":400,"x-kubernetes-validations":[` + strings.TrimSuffix(strings.Repeat(`{"rule":"!self.contains('`+strings.Repeat("y", 140)+`')"},`, 5), ",") + `]}}`), repeated(4000, strings.Repeat("x", 400)), runOut},
	{"a text at the limit", ruled(large, said("self.matches('^(a|b|ab)*c?$')")), strings.Repeat("ab", 1_300_000), callOut},
	{"a text that is split", ruled(`{"type":"string","maxLength":300000}`, said("self.split('').size() > 1")), strings.Repeat("a", 300_000), ""},
	{"a text that grows", ruled(word, said("self"+strings.Repeat(".replace('a','aaaaaaaa')", 7)+".size() > 0")), "a", ""},
	{"a text that grows more", ruled(word, said("self"+strings.Repeat(".replace('a','aaaaaa')", 9)+".lowerAscii() != ''")), "a", callOut},
	{"lists that grow", ruled(fewer, said("self.map(x, self.map(y, x + y)).size() == 0")), counted(300), callOut},
	{"a message that costs", ruled(fewer, tree{"rule": "self.size() == 0", "messageExpression": "string(self.map(x, self.map(y, x + y).size()).size())"}), counted(400), "no further validation rules will be run due to call cost exceeds limit for messageExpression"},
	{"a message too long", ruled(`{"type":"string","maxLength":20000}`, tree{"rule": "self == ''", "messageExpression": "self"}), strings.Repeat("m", 20_000), "failed rule: self == ''"},
	{"a set", ruled(`{"type":"array","x-kubernetes-list-type":"set","maxItems":40000,"items":{"type":"integer"}}`, said("self.size() < 1000 && self == oldSelf"), said("size(self) == self[0]")), counted(30_000), "failed rule: size(self) == self[0]"},
	{"a long list", ruled(`{"type":"array","maxItems":400000,"items":{"type":"integer"}}`, said("self.exists(x, x == -1)")), counted(8000), "failed rule: self.exists(x, x == -1)"},
}

// maxAllocated bounds the bytes that the server and the test together allocate for one
// object.
const maxAllocated = 1 << 30

// TestHostileObjects: rules end within their budget, with the same words everywhere,
// and others get a response meanwhile.
func TestHostileObjects(t *testing.T) {
	tier.Full(t)
	for _, h := range hostileObjects {
		t.Run(h.name, func(t *testing.T) {
			first := ""
			corners(t, func(c *corner) {
				c.define(h.schema, false)
				o := c.object("a", `{}`)
				o["spec"] = tree{"v": h.value}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				text := c.meanwhile(request{"POST", c.things, "", o}).verdict()
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > maxAllocated {
					c.t.Errorf("%d bytes were allocated", n)
				}
				if got := text.text(); len(text.causes) > 0 && h.want == "" || !strings.Contains(got, h.want) {
					c.t.Errorf("%.2000s\nwant %s", got, h.want)
				}
				if got := strings.Join(text.causes, " "); first == "" {
					first = "=" + got
				} else if "="+got != first {
					c.t.Errorf("%.2000s\nwhere the other says %.2000s", got, first)
				}
			})
		})
	}
}

// TestHostileTime: a write whose rules take longer than it may is over then, and did
// nothing.
func TestHostileTime(t *testing.T) {
	tier.Full(t)
	corners(t, func(c *corner) {
		// Each of the 64 rules takes milliseconds. Together they exceed the timeout.
		c.define(ruled(`{"type":"array","maxItems":40000,"items":{"type":"integer"}}`, many(64, "!self.exists(x, x == -1-#)")...), false)
		o := c.object("a", `{}`)
		o["spec"] = tree{"v": counted(12_000)}
		got := c.must(http.StatusGatewayTimeout, request{"POST", c.things + "?timeout=10ms", "", o})
		if text := fmt.Sprint(got.body["message"]); !strings.HasPrefix(text, "Timeout: request did not complete within ") {
			c.t.Error(text)
		}
		c.must(http.StatusNotFound, request{"GET", c.things + "/a", "", nil})
	})
}

// meanwhile sends a request, and others until it gets a response.
func (c *corner) meanwhile(r request) response {
	c.t.Helper()
	done := make(chan response, 1)
	go func() { done <- c.send(c.t, r) }()
	for {
		c.must(http.StatusOK, request{"GET", "/api/v1/namespaces/default", "", nil})
		select {
		case got := <-done:
			return got
		case <-time.After(20 * time.Millisecond): // allocations of these requests count, too
		}
	}
}
