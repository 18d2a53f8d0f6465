package wire

import (
	"strings"
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

// TestMayHaveLargeQuantity finds every large quantity, and takes no name or hash for one: the objects that have these
// would be read twice.
func TestMayHaveLargeQuantity(t *testing.T) {
	for _, text := range []string{
		`{"cpu":"1e900"}`, `{"cpu":"+1e900"}`, `{"cpu":"-1E-900"}`, `{"cpu":" 1e900 "}`, `{"cpu":.1e+900}`, `[-1e900,1]`, `1e900`, `{"cpu":1e900}`,
		"{\"cpu\": 1e900\n}", "\"\u00851e900\"", `"1e00000000000000000000900"`, `"1.e129"`, `{"cpu":"` + strings.Repeat("9", 200) + `"}`,
	} {
		if !mayHaveLargeQuantity([]byte(text)) {
			t.Errorf("%s: a large quantity is not found", text)
		}
	}
	for _, text := range []string{
		`{"cpu":"1e128"}`, `{"cpu":"100m"}`, `{"uid":"9e123456-0e99-4e41-8e61-3e8999999999"}`, `{"uid":"11e999-0"}`, `{"image":"sha256:1e9999a"}`,
		`{"pod-template-hash":"5c689d8e999"}`, `{"name":"web-1e999"}`, `{"name":"1e999-web"}`, `{"time":"2026-01-01T00:00:00Z"}`,
	} {
		if mayHaveLargeQuantity([]byte(text)) {
			t.Errorf("%s: a large quantity is found", text)
		}
	}
}
