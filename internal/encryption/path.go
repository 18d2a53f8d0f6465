package encryption

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storageRoot is the root of kube-apiserver's keys in etcd.
const storageRoot = "/registry/"

// odd lists the resources of built-in groups that kube-apiserver does not store under their name.
var odd = map[string]string{
	"endpoints":                          "services/endpoints",
	"services":                           "services/specs",
	"nodes":                              "minions",
	"replicationcontrollers":             "controllers",
	"ingresses.networking.k8s.io":        "ingress",
	"apiservices.apiregistration.k8s.io": "apiregistration.k8s.io/apiservices",
	"customresourcedefinitions.apiextensions.k8s.io": "apiextensions.k8s.io/customresourcedefinitions",
}

// builtinGroups are the groups that kube-apiserver stores without their name. Stored values are bound to these
// paths: a group that it gets later must not be added, since its name may be that of custom
// resources now.
var builtinGroups = map[string]bool{
	"": true, "apps": true, "autoscaling": true, "batch": true, "policy": true,
	"admissionregistration.k8s.io": true, "authentication.k8s.io": true, "authorization.k8s.io": true,
	"certificates.k8s.io": true, "coordination.k8s.io": true, "discovery.k8s.io": true, "events.k8s.io": true,
	"flowcontrol.apiserver.k8s.io": true, "internal.apiserver.k8s.io": true, "networking.k8s.io": true,
	"node.k8s.io": true, "rbac.authorization.k8s.io": true, "resource.k8s.io": true, "scheduling.k8s.io": true,
	"storage.k8s.io": true, "storagemigration.k8s.io": true,
}

// prefixOf returns the prefix of the keys of a collection in kube-apiserver's storage, such as
// "/registry/secrets/".
func prefixOf(collection string) string {
	gr := schema.ParseGroupResource(collection)
	name, isOdd := odd[collection]
	switch {
	case isOdd:
	case builtinGroups[gr.Group]:
		name = gr.Resource
	default:
		name = gr.Group + "/" + gr.Resource
	}
	return storageRoot + name + "/"
}

// shortPath is a path for messages, with at most 256 bytes.
func shortPath(path string) string {
	const most = 256
	if len(path) > most {
		path = strings.ToValidUTF8(path[:most], "") + "..."
	}
	return path
}
