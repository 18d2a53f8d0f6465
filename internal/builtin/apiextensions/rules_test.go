package apiextensions_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiextensions"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const definition = `
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
  conversion: {strategy: None}
status: {storedVersions: [v1], acceptedNames: {plural: '', kind: ''}, conditions: []}
`

func TestDefinition(t *testing.T) {
	testkinds.Rules(t, definition, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "", ""},
		{"a name is the plural and the group", "metadata.name: others.example.com", `metadata.name: Invalid value: "others.example.com": must be spec.names.plural+"."+spec.group`},
		{"a group is required", "group: ''", "metadata.name: Invalid value: \"things.example.com\": must be spec.names.plural+\".\"+spec.group\ngroup: Required value"},
		{"a scope is known", "scope: Any", `scope: Unsupported value: "Any": supported values: "Cluster", "Namespaced"`},
		{"a kind is required", "names.kind: ''", "names.kind: Required value"},
		{"a version is required", "versions: []\nstatus.storedVersions: []", "versions: Invalid value: []: must have exactly one version marked as storage version\nstatus.storedVersions: Invalid value: []: must have at least one stored version"},
		{"a version is stored", "versions[0].storage: false", `versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one version marked as storage version`},
		{"a schema is required", "versions[0].schema: null", "versions[0].schema.openAPIV3Schema: Required value"},
		{"a schema is structural", "versions[0].schema.openAPIV3Schema.properties: {a: {}}", "validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"},
		{"a rule compiles", "versions[0].schema.openAPIV3Schema: {type: object, properties: {a: {type: string}}, x-kubernetes-validations: [{rule: self.b == ''}]}", "validation.openAPIV3Schema.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.b == ''\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'b'..."},
		{"a conversion is known", "conversion.strategy: Any", `conversion.strategy: Unsupported value: "Any": supported values: "None", "Webhook"`},
		{"a webhook has a client", "conversion.strategy: Webhook", "conversion.webhookClientConfig: Required value: required when strategy is set to Webhook\nconversion.conversionReviewVersions: Required value"},
		{"the group of the server is reserved", "metadata.name: things.tidemark.dev\ngroup: tidemark.dev", "group: Forbidden: the group is reserved for the server"},
		{"a group of Kubernetes is approved", "metadata.name: things.a.k8s.io\ngroup: a.k8s.io", `metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111`},
	}), func(d *apiextensions.Definition) []string { return testkinds.Texts(apiextensions.Validate(d)) })
	testkinds.Rules(t, definition, testkinds.Below("spec", []testkinds.Rule{
		{"default: names and conversion", "names: {plural: things, kind: Thing}\nconversion: null", "conversion.strategy: None\nnames.listKind: ThingList\nnames.singular: thing"},
		{"default: names that were sent stay", "names: {plural: things, kind: Thing, singular: a, listKind: b}", ""},
	}), func(d *apiextensions.Definition) []string { return testkinds.Changes(d, apiextensions.Default) })
	testkinds.Rules(t, definition, testkinds.Below("spec", []testkinds.Rule{
		{"create: the stored version", "status.storedVersions: []", "status.storedVersions: removed\nstatus.storedVersions[0]: v1"},
	}), func(d *apiextensions.Definition) []string { return testkinds.Changes(d, apiextensions.NewStatus) })
	testkinds.Rules(t, definition, []testkinds.Rule{
		{"warn: an unknown format", "spec.versions[0].schema.openAPIV3Schema.properties: {a: {type: string, format: b}, c: {type: array, items: {type: string, format: d}}, e: {type: string, format: date}}", "unrecognized format \"b\"\nunrecognized format \"d\""},
	}, func(d *apiextensions.Definition) []string { return apiextensions.Warnings(d, nil) })
}

func TestDefinitionUpdate(t *testing.T) {
	const v2 = "spec.versions[1]: {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n"
	testkinds.Updates(t, definition, []testkinds.Update{
		{"a version comes", "", v2, ""},
		{"a stored version stays", v2 + "spec.versions[0].storage: false\nspec.versions[1].storage: true", "spec.versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]", "status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2\nstatus.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"},
		{"a group stays", "", "spec.group: x.example.com", `spec.group: Invalid value: "x.example.com": field is immutable`},
		{"an established scope stays", "status.conditions: [{type: Established, status: \"True\"}]", "spec.scope: Cluster", `spec.scope: Invalid value: "Cluster": field is immutable`},
		{"an established kind stays", "status.conditions: [{type: Established, status: \"True\"}]", "spec.names.kind: Other", `spec.names.kind: Invalid value: "Other": field is immutable`},
		{"a new schema is checked", "", "spec.versions[0].schema.openAPIV3Schema.properties: {a: {}}", "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"},
	}, func(d, old *apiextensions.Definition) []string {
		return testkinds.Texts(apiextensions.ValidateUpdate(d, old))
	})
	testkinds.Updates(t, definition, []testkinds.Update{
		{"a new storage version is added", "", v2 + "spec.versions[0].storage: false\nspec.versions[1].storage: true", "status.storedVersions[1]: v2"},
		{"a storage version is added once", "", v2, ""},
	}, func(d, old *apiextensions.Definition) []string {
		return testkinds.Changes(d, func(d *apiextensions.Definition) { apiextensions.KeepStored(d, old) })
	})
	testkinds.Updates(t, definition, []testkinds.Update{
		{"status: an accepted name is a label", "", "status.acceptedNames: {plural: 'A B', kind: Thing}", `status.acceptedNames.plural: Invalid value: "A B": a DNS-1035 label must consist of...`},
	}, func(d, old *apiextensions.Definition) []string {
		return testkinds.Texts(apiextensions.ValidateStatus(d, old))
	})
	testkinds.Updates(t, definition, []testkinds.Update{
		{"warn: a new format", "spec.versions[0].schema.openAPIV3Schema.properties: {a: {type: string, format: b}}", "spec.versions[0].schema.openAPIV3Schema.properties.c: {type: string, format: d}", `unrecognized format "d"`},
	}, apiextensions.Warnings)
}

func TestDefinitionDelete(t *testing.T) {
	testkinds.Rules(t, definition, []testkinds.Rule{
		{"it is terminating, with a finalizer", "metadata.finalizers: [a/b]", "metadata.finalizers[1]: customresourcecleanup.apiextensions.k8s.io\nstatus.conditions: removed\nstatus.conditions[0].lastTransitionTime: ...\nstatus.conditions[0].message: CustomResourceDefinition marked for deletion...\nstatus.conditions[0].reason: InstanceDeletionPending\nstatus.conditions[0].status: True\nstatus.conditions[0].type: Terminating"},
		{"it is marked once", "status.conditions: [{type: Terminating, status: \"True\"}]", ""},
	}, func(d *apiextensions.Definition) []string { return testkinds.Changes(d, apiextensions.PrepareDelete) })
	testkinds.Rules(t, definition, []testkinds.Rule{
		{"held: before the mark", "", "held"},
		{"held: by the finalizer", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z\nmetadata.finalizers: [customresourcecleanup.apiextensions.k8s.io]", "held"},
		{"not held by other finalizers", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z\nmetadata.finalizers: [a/b]", ""},
	}, func(d *apiextensions.Definition) []string {
		if apiextensions.Held(d) {
			return []string{"held"}
		}
		return nil
	})
}
