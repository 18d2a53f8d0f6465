package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const claim = "{metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"

func TestClaimSpec(t *testing.T) {
	testkinds.Rules(t, claim, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "dataSource: {kind: PersistentVolumeClaim, name: a}\ndataSourceRef: {kind: PersistentVolumeClaim, name: a}", ""},
		{"an access mode is required", "accessModes: []", "accessModes: Required value: at least 1 access mode is required"},
		{"an access mode is known", "accessModes: [Any]", `accessModes: Unsupported value: "Any": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`},
		{"ReadWriteOncePod is alone", "accessModes: [ReadWriteOncePod, ReadWriteOnce]", "accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"},
		{"a selector is valid", "selector: {matchLabels: {a b: c}}", `selector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"a size is required", "resources: {}", "resources[storage]: Required value"},
		{"a size is positive", "resources: {requests: {storage: 0}}", `resources[storage]: Invalid value: "0": must be greater than zero`},
		{"storageClassName is a name", "storageClassName: A", `storageClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"volumeMode is known", "volumeMode: Any", `volumeMode: Unsupported value: "Any": supported values: "Block", "Filesystem"`},
		{"volumeAttributesClassName is a name", "volumeAttributesClassName: A", `volumeAttributesClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a source has a name and a kind", "dataSource: {apiGroup: a.b}", "dataSource.name: Required value\ndataSource.kind: Required value"},
		{"a source without a group is a claim", "dataSource: {kind: A, name: a}", `dataSource: Invalid value: "A": must be 'PersistentVolumeClaim' when referencing the default apiGroup`},
		{"a source has a valid group", "dataSource: {apiGroup: A, kind: A, name: a}", `dataSource.apiGroup: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a reference is checked", "dataSourceRef: {kind: A}", "dataSourceRef.name: Required value\ndataSourceRef: Invalid value: \"A\": must be 'PersistentVolumeClaim' when referencing the default apiGroup"},
		{"a reference has a valid namespace", "dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: A}", `dataSourceRef.namespace: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"a reference elsewhere is alone", "dataSource: {kind: PersistentVolumeClaim, name: a}\ndataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: b}", ": Invalid value: {}: may not be specified when dataSourceRef.namespace is specified"},
		{"both say the same", "dataSource: {kind: PersistentVolumeClaim, name: a}\ndataSourceRef: {kind: PersistentVolumeClaim, name: b}", ": Invalid value: {}: must match dataSourceRef"},
	}), func(c *corev1.PersistentVolumeClaim) []string {
		return testkinds.Texts(claimspec.Validate(&c.Spec, nil, field.NewPath("spec")))
	})
	testkinds.Updates(t, claim, []testkinds.Update{
		{"a wrong group stays", "spec.dataSource: {apiGroup: A, kind: A, name: a}", "metadata.labels: {a: b}", ""},
	}, func(c, old *corev1.PersistentVolumeClaim) []string {
		return testkinds.Texts(claimspec.Validate(&c.Spec, &old.Spec, field.NewPath("spec")))
	})
	testkinds.Rules(t, claim, []testkinds.Rule{
		{"a template has labels and annotations alone", "metadata: {name: a, namespace: b, labels: {a b: c}, annotations: {a b: c}}", "template.metadata.annotations: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\ntemplate.metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\ntemplate.metadata.name: Forbidden: cannot be set\ntemplate.metadata.namespace: Forbidden: cannot be set"},
	}, func(c *corev1.PersistentVolumeClaimTemplate) []string {
		var errs check.Errors
		claimspec.ValidateTemplate(&errs, c, field.NewPath("template"))
		return testkinds.Texts(errs.List())
	})
}

func TestClaimSpecDefaults(t *testing.T) {
	testkinds.Rules(t, claim, []testkinds.Rule{
		{"all", "spec.resources.requests: {storage: 100u}", "spec.resources.requests.storage: 1m\nspec.volumeMode: Filesystem\nstatus.phase: Pending\nstatus: removed"},
		{"what is set stays", "spec.volumeMode: Block\nstatus: {phase: Bound}", ""},
	}, func(c *corev1.PersistentVolumeClaim) []string { return testkinds.Changes(c, claimspec.DefaultClaim) })
}

func TestClaimSpecWarnings(t *testing.T) {
	testkinds.Rules(t, claim, []testkinds.Rule{
		{"a part of a byte", "spec.resources: {requests: {storage: 100m}, limits: {storage: 100m}}", "spec.resources.requests[storage]: fractional byte value \"100m\" is invalid, must be an integer\nspec.resources.limits[storage]: fractional byte value \"100m\" is invalid, must be an integer"},
	}, func(c *corev1.PersistentVolumeClaim) []string {
		return claimspec.Warnings(&c.Spec, field.NewPath("spec"))
	})
}
