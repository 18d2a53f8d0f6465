package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"strings"
)

// stages are the stages of simulated nodes and Pods.
//
//go:embed stages.yaml
var stages []byte

// metrics are the metrics of simulated nodes and Pods.
//
//go:embed metrics.yaml
var metrics []byte

const (
	// kwokUser is the user of kwok, and the name of its role.
	kwokUser = "tidemark:kwok"
	// nodeMark and nodeMarked are the annotation of the nodes that kwok simulates.
	nodeMark, nodeMarked = "kwok.x-k8s.io/node", "fake"
	// metricsPath is the annotation by which a node names the path of its metrics to metrics-server: one server, kwok, has
	// those of all nodes.
	metricsPath = "metrics.k8s.io/resource-metrics-path"
	// nodePrefix is the prefix of their names.
	nodePrefix = "node-"
)

// object is JSON.
type object = map[string]any

// kwokRules are the rights of kwok without custom resources: nodes, their Leases, and the Pods on them.
var kwokRules = []object{
	{"apiGroups": []string{""}, "resources": []string{"nodes"}, "verbs": []string{"get", "list", "watch", "patch", "update"}},
	{"apiGroups": []string{""}, "resources": []string{"nodes/status", "pods/status"}, "verbs": []string{"patch", "update"}},
	{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": []string{"get", "list", "watch", "patch", "update", "delete"}},
	{"apiGroups": []string{""}, "resources": []string{"events"}, "verbs": []string{"create", "patch", "update"}},
	{"apiGroups": []string{"coordination.k8s.io"}, "resources": []string{"leases"}, "verbs": []string{"get", "list", "watch", "create", "patch", "update"}},
}

// allowKwok gives the user of kwok its rights. Roles that exist stay, so that an administrator can extend them.
func (c *client) allowKwok(ctx context.Context) error {
	const group, path = "rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1/"
	metadata := object{"name": kwokUser}
	role := object{"metadata": metadata, "rules": kwokRules}
	if err := except(http.StatusConflict, c.do(ctx, http.MethodPost, path+"clusterroles", role, nil)); err != nil {
		return err
	}
	binding := object{
		"metadata": metadata,
		"roleRef":  object{"apiGroup": group, "kind": "ClusterRole", "name": kwokUser},
		"subjects": []object{{"apiGroup": group, "kind": "User", "name": kwokUser}},
	}
	return except(http.StatusConflict, c.do(ctx, http.MethodPost, path+"clusterrolebindings", binding, nil))
}

// createNodes creates the nodes 0 to n-1 that do not exist. Those that do get the annotation that they lack if an earlier
// version created them.
func (c *client) createNodes(ctx context.Context, n int) error {
	nodes, err := c.listNodes(ctx)
	if err != nil {
		return err
	}
	exist := map[string]bool{}
	for _, item := range nodes {
		name := item.Metadata.Name
		exist[name] = true
		if item.Metadata.Annotations[nodeMark] != nodeMarked || item.Metadata.Annotations[metricsPath] != "" {
			continue
		}
		patch := object{"metadata": object{"annotations": object{metricsPath: metricsOf(name)}}}
		if err := c.do(ctx, http.MethodPatch, "/api/v1/nodes/"+name, patch, nil); err != nil {
			return err
		}
	}
	for i := range n {
		if exist[nodeName(i)] {
			continue
		}
		if err := except(http.StatusConflict, c.do(ctx, http.MethodPost, "/api/v1/nodes", node(i), nil)); err != nil {
			return err
		}
	}
	return nil
}

// listed is what the cluster reads of a node.
type listed struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

// listNodes returns all nodes.
func (c *client) listNodes(ctx context.Context) ([]listed, error) {
	var list struct{ Items []listed }
	err := c.do(ctx, http.MethodGet, "/api/v1/nodes", nil, &list)
	return list.Items, err
}

func nodeName(i int) string { return fmt.Sprintf("%s%d", nodePrefix, i) }

// metricsOf returns the path of a node's metrics at kwok.
func metricsOf(node string) string { return "/metrics/nodes/" + node + "/metrics/resource" }

// node returns a node with the size of a large machine.
func node(i int) object {
	name := nodeName(i)
	size := object{"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
	return object{
		"metadata": object{
			"name":        name,
			"annotations": object{nodeMark: nodeMarked, metricsPath: metricsOf(name)},
			"labels":      object{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok"},
		},
		"status": object{"capacity": size, "allocatable": size},
	}
}

// nodesReady reports whether n simulated nodes are ready.
func (c *client) nodesReady(ctx context.Context, n int) (bool, error) {
	nodes, err := c.listNodes(ctx)
	if err != nil {
		return false, err
	}
	ready := 0
	for _, item := range nodes {
		for _, condition := range item.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" && strings.HasPrefix(item.Metadata.Name, nodePrefix) {
				ready++
			}
		}
	}
	return ready >= n, nil
}
