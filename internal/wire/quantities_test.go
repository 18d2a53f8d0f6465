package wire

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestStoredQuantities reads stored quantities that take hours to decode or to compare.
func TestStoredQuantities(t *testing.T) {
	for text, want := range map[string]string{
		`"1e-900000000"`:        "1n",
		`"-1e-900000000"`:       "-1n",
		`"1e900000000"`:         "9223372036854775807",
		`"1e200"`:               "100e198",
		`1e900000000`:           "9223372036854775807",
		`"1500m"`:               "1500m",
		`"1Ei"`:                 "1Ei",
		`"1e90000","cpu":"5"`:   "5",
		`null`:                  "0",
		`"1e-900000000", "x":1`: "1n",
	} {
		stored := `{"kind":"ResourceQuota","metadata":{"name":"a","labels":{"a":"1e-90000"}},"spec":{"hard":{"memory":"1","cpu":` + text + `,"pods":"1e-90000"}}}`
		o, err := Unmarshal([]byte(stored), func() runtime.Object { return new(corev1.ResourceQuota) })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		q := o.(*corev1.ResourceQuota)
		cpu, memory, pods := q.Spec.Hard["cpu"], q.Spec.Hard["memory"], q.Spec.Hard["pods"]
		if cpu.String() != want || memory.String() != "1" || pods.String() != "1n" || q.Labels["a"] != "1e-90000" {
			t.Errorf("%s: got %v", text, q.Spec.Hard)
		}
	}
}
