package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// runningPod is a Pod as in a cluster: created by a controller, with a status from a
// kubelet.
const runningPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-5c689d88bb-0000001","generateName":"web-5c689d88bb-","namespace":"shop","uid":"0b6a1f6e-7d0c-4a86-9b6d-b5b7a1c3a001",` +
	`"resourceVersion":"1234567","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app.kubernetes.io/name":"web","pod-template-hash":"5c689d88bb"},` +
	`"annotations":{"checksum/config":"a1b2c3","note":"\"quoted\" \u003cb\u003e é\n"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5c689d88bb","uid":"7c1e5f0a","controller":true,"blockOwnerDeletion":true}],` +
	`"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},` +
	`"f:ownerReferences":{".":{},"k:{\"uid\":\"7c1e5f0a\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{}}}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}},` +
	`{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:10Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:status":{},"f:type":{}}},"f:phase":{}}},"subresource":"status"}]},` +
	`"spec":{"volumes":[{"name":"config","configMap":{"name":"web-config","defaultMode":420}}],"containers":[{"name":"web","image":"registry.example.com/shop/web:v1.2.3","args":["--listen=:8080"],` +
	`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],` +
	`"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m"}},"volumeMounts":[{"name":"config","readOnly":true,"mountPath":"/etc/web"}],` +
	`"livenessProbe":{"httpGet":{"path":"/livez","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},` +
	`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","securityContext":{"capabilities":{"drop":["ALL"]},"runAsNonRoot":true}}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","nodeName":"n1","securityContext":{},"schedulerName":"default-scheduler",` +
	`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},` +
	`"status":{"observedGeneration":1,"phase":"Running","conditions":[{"type":"Ready","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:10Z"}],` +
	`"hostIP":"192.0.2.10","podIP":"198.51.100.7","podIPs":[{"ip":"198.51.100.7"}],"startTime":"2026-01-01T00:00:00Z",` +
	`"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-01-01T00:00:09Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/shop/web:v1.2.3","imageID":"x","containerID":"containerd://7c1e","started":true}],"qosClass":"Burstable"}}`

// TestTranscode: messages of stored objects are made without decoding them, of every
// kind that the field's types let.
func TestTranscode(t *testing.T) {
	own := map[string]bool{"CustomResourceDefinition": true} // its schemas read JSON by themselves
	for typ := range builtin.Catalog().Types() {
		if typ.Collection == "" || typ.Conversion != nil {
			continue
		}
		o := typ.New()
		o.(metav1.Object).SetName("a")
		stored, err := wire.Encode(typ, o)
		if err != nil {
			t.Fatal(err)
		}
		value := bytes.Replace(stored.Bytes, []byte(`"resourceVersion":""`), []byte(`"resourceVersion":"1"`), 1)
		if planned, done := wire.Transcodes(typ, value); planned == own[typ.Kind] || planned && !done {
			t.Errorf("%s: planned %v, done %v: %s", typ.Kind, planned, done, value)
		}
	}
	if _, done := wire.Transcodes(pods, []byte(runningPod)); !done {
		t.Error("a running pod is decoded")
	}
	sameMessage(t, pods, []byte(runningPod))
}

func sameMessage(t *testing.T, typ *resource.Type, value []byte) {
	t.Helper()
	o, err := wire.Read(context.Background(), typ, value)
	if err != nil {
		t.Fatal(err)
	}
	want, err := wire.Message(o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.MessageOf(typ, value); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: another message of %s\n%q\nwant\n%q", err, value, got, want)
	}
}

// TestTranscodeUnexpected checks that a value that is not in the form of stored objects is decoded.
func TestTranscodeUnexpected(t *testing.T) {
	const head = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":null},`
	for _, value := range []string{
		head + `"spec":{"containers":null},"status":{}}`,
		head + `"status":{},"spec":{"containers":[]}}`,
		head + `"spec":{"containers":[ {"name":"a","resources":{}} ]},"status":{}}`,
		head + `"spec":{"containers":[{"resources":{"limits":{"cpu":"1000m"}},"name":"a"}]},"status":{}}`,
		head + `"spec":{"unknown":[{}],"containers":[]},"status":{}}`,
		head + `"spec":{"containers":[null]},"status":{}}`,
		head + `"spec":{"containers":[{"na\u006de":"a"}]},"status":{}}`,
		`{}`,
	} {
		sameMessage(t, pods, []byte(value))
	}
	if _, err := wire.MessageOf(pods, []byte(`{"spec":`)); err == nil {
		t.Error("half an object has a message")
	}
}

// FuzzTranscode checks that a value in the form of stored objects becomes the message of its
// object, and that others do no harm.
func FuzzTranscode(f *testing.F) {
	f.Add([]byte(runningPod))
	f.Add([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"\ud800\\"},"spec":{"containers":[{"args":["\"]"]}]}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := wire.MessageOf(pods, value)
		if err != nil {
			return
		}
		o, err := wire.Read(context.Background(), pods, value)
		if err != nil {
			return // it is no object
		}
		again, err := json.Marshal(o)
		if err != nil || !bytes.Equal(again, value) {
			return // it is not as it would be stored
		}
		if want, err := wire.Message(o); err != nil || !bytes.Equal(got, want) {
			t.Errorf("another message of %s: %q, want %q", value, got, want)
		}
	})
}

// BenchmarkMessage makes the message of a running pod, and of its metadata.
func BenchmarkMessage(b *testing.B) {
	meta, err := wire.MetadataOf([]byte(runningPod))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.MessageOf(pods, []byte(runningPod)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			o, err := wire.Read(context.Background(), pods, []byte(runningPod))
			if err == nil {
				_, err = wire.Message(o)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("metadata", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.PartialMessage(meta); err != nil {
				b.Fatal(err)
			}
		}
	})
}
