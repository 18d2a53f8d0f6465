package integration_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestPatchedVersion changes the apiVersion of objects by patches. The result is read in the version that it names, gets
// the defaults of that version, and is shown in the version of the request.
func TestPatchedVersion(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const (
		v1     = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
		v2     = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
		events = "/api/v1/namespaces/default/events"
		newer  = "/apis/events.k8s.io/v1/namespaces/default/events"
	)
	run(t, c, []step{
		{"POST " + v2, `{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`, 201, nil},
		{"MERGE " + v2 + "/h", `{"apiVersion":"autoscaling/v1","spec":{"metrics":null,"targetCPUUtilizationPercentage":30}}`, 200, map[string]string{
			"apiVersion": `"autoscaling/v2"`, "spec.metrics.0.resource.target.averageUtilization": "30",
		}},
		{"JSON " + v1 + "/h", `[{"op":"replace","path":"/apiVersion","value":"autoscaling/v2"},{"op":"add","path":"/spec/minReplicas","value":2}]`, 200, map[string]string{
			"apiVersion": `"autoscaling/v1"`, "spec.minReplicas": "2",
		}},
		{"MERGE " + v2 + "/h", `{"apiVersion":"autoscaling/v3"}`, 422, nil},
		{"MERGE " + v2 + "/h", `{"apiVersion":"apps/v1","kind":"Deployment"}`, 422, nil},
		{"MERGE " + v2 + "/h", `{"apiVersion":null,"kind":null}`, 400, nil},
		{"MERGE " + v2 + "/h", `{"apiVersion":""}`, 400, nil},
		{"MERGE " + v2 + "/h/status", `{"apiVersion":null}`, 400, nil},
		{"JSON " + v2 + "/h", `[{"op":"remove","path":"/apiVersion"}]`, 400, map[string]string{
			"message": `"the name of the object (h based on URL) was undeterminable: name must be provided"`,
		}},
		{"JSON " + v2 + "/h", `[{"op":"replace","path":"","value":{"kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}}]`, 400, map[string]string{
			"message": `"the name of the object (h based on URL) was undeterminable: name must be provided"`,
		}},
		{"JSON " + v2 + "/h", `[{"op":"replace","path":"","value":{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":4,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}}]`, 200, map[string]string{
			"spec.maxReplicas": "4",
		}},
		{"MERGE " + v2 + "/h", `{"kind":null}`, 200, nil},
		{"PATCH " + v2 + "/h", `{"apiVersion":null,"kind":"Foo"}`, 200, nil},
		{"PATCH " + v2 + "/h", `{"apiVersion":5}`, 422, map[string]string{
			"message": `" \"\" is invalid: patch: Invalid value: \"map[apiVersion:5]\": cannot convert int64 to string"`,
		}},
		{"POST " + events, `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"},"message":"a"}`, 201, nil},
		{"MERGE " + events + "/e", `{"apiVersion":"events.k8s.io/v1","note":"b"}`, 200, map[string]string{"apiVersion": `"v1"`, "message": `"b"`}},
		{"MERGE " + newer + "/e", `{"apiVersion":"v1","note":null,"message":"b","metadata":{"labels":{"a":"b"}}}`, 200, map[string]string{
			"apiVersion": `"events.k8s.io/v1"`, "note": `"b"`, "metadata.labels.a": `"b"`,
		}},
	})
}
