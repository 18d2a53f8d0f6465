package testkinds

import (
	"encoding/json"
	"fmt"
	"strings"
)

// PodValidations are ten validations of Pods as clusters have them. They hold for a PlainPod.
var PodValidations = []string{
	"object.spec.containers.all(c, has(c.image) && !c.image.endsWith(':latest'))",
	"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
	"!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
	"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
	"has(object.metadata.labels) && 'app' in object.metadata.labels",
	"object.metadata.name.size() < 64",
	"request.operation == 'CREATE'",
	"object.spec.containers.all(c, has(c.resources) && has(c.resources.requests) && 'cpu' in c.resources.requests)",
	"object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
	"!has(object.spec.priorityClassName) || object.spec.priorityClassName in ['low', 'high']",
}

// PlainPod returns the JSON of a Pod.
func PlainPod(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"web","tier":"front"},"annotations":{"a":"b"}},
"spec":{"containers":[{"name":"app","image":"registry.example.com/web:1.2","resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"ports":[{"containerPort":80}],
"env":[{"name":"A","value":"b"}],"securityContext":{"runAsNonRoot":true}},{"name":"side","image":"registry.example.com/side:1.2","resources":{"requests":{"cpu":"100m"}}}],
"volumes":[{"name":"v","emptyDir":{}}]}}`, name)
}

// PodPolicy returns the JSON of a ValidatingAdmissionPolicy with PodValidations for created objects of
// a resource of the core group, in the namespaces that have all labels of selector (JSON).
func PodPolicy(name, resource, selector string) string {
	var all []string
	for _, text := range PodValidations {
		quoted, _ := json.Marshal(text)
		all = append(all, fmt.Sprintf(`{"expression":%s}`, quoted))
	}
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":%s},
"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":[%q]}]},"validations":[%s]}}`, name, selector, resource, strings.Join(all, ","))
}

// DenyBinding returns the JSON of a ValidatingAdmissionPolicyBinding with the name of its policy. It denies.
func DenyBinding(policy string) string {
	return fmt.Sprintf(`{"metadata":{"name":%[1]q},"spec":{"policyName":%[1]q,"validationActions":["Deny"]}}`, policy)
}
