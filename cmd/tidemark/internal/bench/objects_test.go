package bench

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
)

// TestClientBodies: the bodies are byte for byte those that client-go would send.
func TestClientBodies(t *testing.T) {
	o := objects{seed: 1, pad: 200, configMapPad: 200, deploymentPad: 200}
	for _, test := range []struct {
		name string
		body []byte
		as   any
	}{
		{"a new pod", o.pod("web", 3), &corev1.Pod{}},
		{"a new ConfigMap", o.configMap("web", 3, 4, ""), &corev1.ConfigMap{}},
		{"an update of a ConfigMap", o.configMap("web", 3, 4, "5"), &corev1.ConfigMap{}},
		{"an applied ConfigMap", appliedConfigMap.body(o, "web", 3, 4), &applycore.ConfigMapApplyConfiguration{}},
		{"an applied Deployment", appliedDeployment.body(o, "web", 3, 4), &applyapps.DeploymentApplyConfiguration{}},
	} {
		if err := json.Unmarshal(test.body, test.as); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		want, err := json.Marshal(test.as)
		if err != nil {
			t.Fatal(err)
		}
		if string(test.body) != string(want) {
			t.Errorf("%s is\n%s\nclient-go sends\n%s", test.name, test.body, want)
		}
		if n := strings.Count(string(test.body), mark); n != 1 {
			t.Errorf("%s has %d marks, want 1", test.name, n)
		}
	}
}

// TestStatusPatches checks that each patch is the difference of two statuses, as a kubelet computes
// it, and that both kinds lead to the same status.
func TestStatusPatches(t *testing.T) {
	pod := objects{seed: 1}.pod("web", 3)
	was, err := strategicpatch.StrategicMergePatch(pod, podPatch{1, "u"}.first(), corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	for change := range uint64(4) {
		p := podPatch{change + 2, "u"}
		next, err := strategicpatch.StrategicMergePatch(was, p.strategic(), corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		if err := holds(next, p.wrote()); err != nil {
			t.Error(err)
		}
		diff, err := strategicpatch.CreateTwoWayMergePatch(was, next, corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		// A kubelet adds the uid as a precondition.
		if got := strings.Replace(string(p.strategic()), `"metadata":{"uid":"u"},`, "", 1); got != string(diff) {
			t.Errorf("the patch is\n%s\na kubelet makes\n%s", got, diff)
		}
		var merged, status struct{ Status corev1.PodStatus }
		if err := json.Unmarshal(p.merge(), &merged); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(next, &status); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(merged.Status.Conditions)
		b, _ := json.Marshal(status.Status.Conditions)
		if string(a) != string(b) {
			t.Errorf("conditions by merge patch\n%s\nby strategic patch\n%s", a, b)
		}
		was = next
	}
}

// TestDeploymentIsValid keeps the Deployment one that a server takes.
func TestDeploymentIsValid(t *testing.T) {
	var d appsv1.Deployment
	if err := json.Unmarshal((objects{seed: 1}).deployment("web", 3, 4), &d); err != nil {
		t.Fatal(err)
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("the selector wants %s=%s, which the template has not", k, v)
		}
	}
}

// TestTurns: every object has its turn, with one client alone.
func TestTurns(t *testing.T) {
	for _, clients := range []int{1, 3, 16, 40} {
		b := &bed{options: Options{Objects: 37}}
		turns := b.turns(clients, 1000)
		owner := map[int]int{}
		for range 80 {
			for k := range clients {
				i := turns.next(&client{number: k})
				if of, ok := owner[i]; ok && of != k || i < 0 || i >= turns.objects {
					t.Fatalf("%d clients: object %d of %d is the turn of client %d and of %d", clients, i, turns.objects, of, k)
				}
				owner[i] = k
			}
		}
		if len(owner) != turns.objects {
			t.Errorf("%d clients take %d objects, want %d", clients, len(owner), turns.objects)
		}
	}
}
