package expression_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

// BenchmarkPodValidations evaluates ten validations for one Pod, as a policy does for a request.
func BenchmarkPodValidations(b *testing.B) {
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(testkinds.PlainPod("web")), &pod); err != nil {
		b.Fatal(err)
	}
	var programs []*expression.Program
	for _, text := range testkinds.PodValidations {
		p, err := expression.Compile(text, expression.Variables{Composited: new(expression.Composition)}, expression.Stored, cel.BoolType)
		if err != nil {
			b.Fatal(err)
		}
		programs = append(programs, p)
	}
	b.ReportAllocs()
	for b.Loop() {
		in := &expression.Input{Object: expression.Typed(&pod, nil), Request: map[string]any{"operation": "CREATE"}}
		e := expression.NewEvaluation(context.Background(), in, nil, expression.Budget)
		for _, p := range programs {
			if v, err := e.Eval(p); err != nil || v.Value() != true {
				b.Fatal(p.Text(), v, err)
			}
		}
	}
}
