package bench

import (
	"fmt"
	"strings"
)

// settingsOf are custom objects with the data of ConfigMaps: both kinds compare.
const settingsOf = "settings.alike"

// settingDefinition is the definition of settingsOf. As in most definitions, missing
// fields have defaults.
var settingDefinition = definition{
	group: "alike", plural: "settings", kind: "Setting", role: "alike", namespaced: true,
	schema: `{"type":"object","properties":{"data":{"type":"object","additionalProperties":{"type":"string"}},"immutable":{"type":"boolean"},"reload":{"type":"string","default":"OnChange","enum":["OnChange","Never"]}}}`,
}

// setting is an object of settingsOf: a ConfigMap by another name.
func (b *bed) setting(name string, number uint64, sent int64) []byte {
	head := `{"kind":"ConfigMap","apiVersion":"v1",`
	rest := b.objects.configMap(name, number, sent, "")[len(head):]
	return append(fmt.Appendf(nil, `{"kind":"Setting","apiVersion":"%s.%s/v1",`, settingDefinition.group, b.domain()), rest...)
}

// gadgetsOf are custom objects with a schema of 200 properties and a rule.
const gadgetsOf = "gadgets.checked"

// gadgetProperties is the number of properties in the schema.
const gadgetProperties = 200

var gadgetDefinition = definition{
	group: "checked", plural: "gadgets", kind: "Gadget", role: "checked", namespaced: true,
	schema: `{"type":"object","required":["spec"],"properties":{"spec":{"type":"object","required":["field000"],` +
		`"x-kubernetes-validations":[{"rule":"self.field000 != 'none' || has(self.field001)","message":"what is none needs its number"}],` +
		`"properties":{` + properties(gadgetProperties) + `,"policy":{"type":"string","default":"Delete","enum":["Delete","Orphan"]}}},` +
		`"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`,
	more: `,"subresources":{"status":{}}`,
}

// gadget is an object of gadgetsOf, with thirty of its properties.
func (b *bed) gadget(name string, number int64) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"%s.%s/v1","kind":"Gadget","metadata":{"name":%q,"labels":{"slot":"%d"},"annotations":{"bench.tidemark.dev/mark":"%s"}},"spec":{%s}}`,
		gadgetDefinition.group, b.domain(), name, number%slots, mark, fields(30, number))
}

// providerDefinition is as generators make them from the interfaces of clouds: most of
// it is text for people. Twenty are of one group.
func providerDefinition(role string, number uint64, p provider) definition {
	parameters, rules := `{"type":"object","properties":{`+properties(p.properties)+`}}`, ""
	if p.rule {
		rules = `"x-kubernetes-validations":[{"rule":"!('*' in self.managementPolicies || 'Create' in self.managementPolicies) || has(self.forProvider.field000) || (has(self.initProvider) && has(self.initProvider.field000))","message":"spec.forProvider.field000 is a required parameter"}],`
	}
	return definition{
		properties: p.properties,
		group:      fmt.Sprintf("service%d", number/20), plural: fmt.Sprintf("things%d", number), kind: fmt.Sprintf("Thing%d", number), role: role,
		schema: `{"type":"object","description":"A thing that a provider keeps as it is described here.","required":["spec"],"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"type":"object"},` +
			`"spec":{"type":"object","required":["forProvider"],` + rules +
			`"properties":{"forProvider":` + parameters + `,"initProvider":` + parameters + `,` +
			`"deletionPolicy":{"type":"string","default":"Delete","enum":["Orphan","Delete"]},` +
			`"managementPolicies":{"type":"array","default":["*"],"items":{"type":"string","enum":["Observe","Create","Update","Delete","LateInitialize","*"]}},` +
			`"providerConfigRef":{"type":"object","default":{"name":"default"},"required":["name"],"properties":{"name":{"type":"string"},"policy":{"type":"object","properties":{"resolution":{"type":"string","default":"Required","enum":["Required","Optional"]}}}}}}},` +
			`"status":{"type":"object","properties":{"atProvider":` + parameters + `,` +
			`"conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],"items":{"type":"object","required":["type","status","reason","lastTransitionTime"],` +
			`"properties":{"type":{"type":"string"},"status":{"type":"string"},"reason":{"type":"string"},"message":{"type":"string"},"lastTransitionTime":{"type":"string","format":"date-time"}}}}}}}}`,
		more: `,"subresources":{"status":{}},"additionalPrinterColumns":[{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"},{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}]`,
	}
}

// provider is how a providerDefinition is made.
type provider struct {
	properties int // of each of its three parts
	rule       bool
}

var (
	smallProvider = provider{properties: 4} // 4 KB
	ruledProvider = provider{properties: 4, rule: true}
	largeProvider = provider{properties: 80, rule: true} // 40 KB
)

// thing is an object of a providerDefinition.
func (b *bed) thing(d definition, name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"%s.%s/v1","kind":%q,"metadata":{"name":%q,"annotations":{"bench.tidemark.dev/mark":"%s"}},"spec":{"forProvider":{%s}}}`,
		d.group, b.domain(), d.kind, name, mark, fields(min(20, d.properties), 1))
}

// properties are members of a schema, six kinds of them by turns.
func properties(n int) string {
	const text = "What the provider makes of this field, which values it takes, its default, and what happens to objects that exist already."
	types := []string{
		`"type":"string","maxLength":256`, `"type":"number"`, `"type":"boolean"`, `"type":"integer","minimum":0`,
		`"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"size":{"type":"integer"}}}`,
		`"type":"object","additionalProperties":{"type":"string"}`,
	}
	var s strings.Builder
	for i := range n {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `"field%03d":{"description":%q,%s}`, i, text, types[i%len(types)])
	}
	return s.String()
}

// fields are members of an object for the first n of such properties.
func fields(n int, number int64) string {
	values := []string{`"value-%d"`, `1.5`, `true`, `%d`, `[{"name":"first","size":%d},{"name":"second"}]`, `{"key":"value-%d"}`}
	var s strings.Builder
	for i := range n {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `"field%03d":%s`, i, strings.ReplaceAll(values[i%len(values)], "%d", fmt.Sprint(number)))
	}
	return s.String()
}
