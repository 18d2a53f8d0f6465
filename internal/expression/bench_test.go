package expression_test

import (
	"context"
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/tidemark-dev/tidemark/internal/expression"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// podRules are ten validations as policies of clusters have them.
var podRules = []string{
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

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"shop","labels":{"app":"web","tier":"front"},"annotations":{"a":"b"},"uid":"x","creationTimestamp":"2026-01-01T00:00:00Z"},
"spec":{"containers":[{"name":"app","image":"registry.example.com/web:1.2","resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"securityContext":{"runAsNonRoot":true}},
{"name":"side","image":"registry.example.com/side:1.2","resources":{"requests":{"cpu":"100m"}}}],"volumes":[{"name":"v","emptyDir":{}}],"restartPolicy":"Always","dnsPolicy":"ClusterFirst"}}`

func BenchmarkPodRules(b *testing.B) {
	var pod map[string]any
	if err := utiljson.Unmarshal([]byte(podJSON), &pod); err != nil {
		b.Fatal(err)
	}
	in := &expression.Input{Object: pod, Request: map[string]any{"operation": "CREATE"}}
	var programs []*expression.Program
	for _, text := range podRules {
		p, err := expression.Compile(text, expression.Variables{Composited: new(expression.Composition)}, expression.Stored, cel.BoolType)
		if err != nil {
			b.Fatal(err)
		}
		programs = append(programs, p)
	}
	b.ReportAllocs()
	for b.Loop() {
		e := expression.NewEvaluation(context.Background(), in, nil, expression.Budget)
		for _, p := range programs {
			if v, err := e.Eval(p); err != nil || v.Value() != true {
				b.Fatal(p.Text(), v, err)
			}
		}
	}
}
