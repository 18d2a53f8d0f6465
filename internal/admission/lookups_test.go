package admission_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNextRequest checks that a change of an object that admission reads affects the next Pod.
func TestNextRequest(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	runtimeClass := `{"metadata":{"name":"r"},"handler":"r","overhead":{"podFixed":{"cpu":"%s"}}}`
	w.must("priorityclasses", "", `{"metadata":{"name":"low"},"value":1}`)
	w.must("priorityclasses", "", `{"metadata":{"name":"high"},"value":9,"globalDefault":true}`)
	w.must("limitranges", "n", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","defaultRequest":{"cpu":"1"}}]}}`)
	w.must("runtimeclasses", "", fmt.Sprintf(runtimeClass, "10m"))
	change := func(resource, namespace, name, body string) func() {
		return func() {
			w.Helper()
			if _, err := w.patch(resource, namespace, name, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	replaceRuntime := func() {
		if _, err := w.Delete(t.Context(), w.target("runtimeclasses", "", "r"), &metav1.DeleteOptions{}, nil); err != nil {
			t.Fatal(err)
		}
		w.must("runtimeclasses", "", fmt.Sprintf(runtimeClass, "20m"))
	}
	request := func(p *corev1.Pod) string { return p.Spec.Containers[0].Resources.Requests.Cpu().String() }
	for i, c := range []struct {
		change func()
		of     func(*corev1.Pod) string
		want   string
	}{
		{func() {}, priorityOf, "high 9"},
		{change("priorityclasses", "", "high", `{"globalDefault":false}`), priorityOf, " 0"},
		{change("priorityclasses", "", "low", `{"globalDefault":true}`), priorityOf, "low 1"},
		{func() {}, request, "1"},
		{change("limitranges", "n", "l", `{"spec":{"limits":[{"type":"Container","defaultRequest":{"cpu":"2"}}]}}`), request, "2"},
		{func() {}, overheadOf, "10m"},
		{replaceRuntime, overheadOf, "20m"},
	} {
		c.change()
		name := fmt.Sprint("p", i)
		w.must("pods", "n", pod(name, `{"runtimeClassName":"r","containers":[{"name":"c","image":"i"}]}`))
		if got := c.of(w.pod("n/" + name)); got != c.want {
			t.Errorf("Pod %d: %q, want %q", i, got, c.want)
		}
	}
	change("namespaces", "", "n", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)()
	w.refuse("pods", "n", pod("strict", hostNet), `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	change("namespaces", "", "n", `{"metadata":{"labels":null}}`)()
	w.must("pods", "n", pod("free", hostNet))
}

func priorityOf(p *corev1.Pod) string {
	return fmt.Sprint(p.Spec.PriorityClassName, " ", *p.Spec.Priority)
}

func overheadOf(p *corev1.Pod) string { return p.Spec.Overhead.Cpu().String() }
