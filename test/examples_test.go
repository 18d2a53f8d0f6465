package test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestExamples applies the files in examples/ as the README does, and reads them back.
func TestExamples(t *testing.T) {
	tier.Full(t)
	k := newKubectl(t, servers.Start(t))
	const dir = "../examples/"
	k.want("", []string{"apply", "--server-side", "-f", dir + "manifests/"},
		"configmap/web serverside-applied", "deployment.apps/web serverside-applied", "service/web serverside-applied")
	if got := k.value("deployment/web", "{.spec.replicas} {.spec.strategy.type} {.spec.template.spec.restartPolicy}"); got != "2 RollingUpdate Always" {
		t.Errorf("the Deployment is %q", got)
	}
	if got := k.value("service/web", "{.spec.type} {.spec.ports[0].protocol}"); got != "ClusterIP TCP" {
		t.Errorf("the Service is %q", got)
	}
	k.want("", []string{"apply", "-f", dir + "definition.yaml"}, "databases.example.com created")
	k.want("", []string{"apply", "-f", dir + "object.yaml"}, "database.example.com/orders created")
	k.want("", []string{"get", "databases"}, "NAME     ENGINE     REPLICAS", "orders   postgres   1")
	k.want("", []string{"apply", "-f", dir}, "databases.example.com unchanged", "orders unchanged")
	k.wantError("", []string{"patch", "db/orders", "--type=merge", "-p", `{"spec":{"engine":"mysql","replicas":2}}`}, "only postgres can have replicas")
}
