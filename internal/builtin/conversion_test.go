package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/builtin/autoscaling"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestAutoscalerFacts compares conversions with recorded ones of kube-apiserver v1.36.3. Each
// record has an object of version 2, and the same object as version 1. For objects that were
// written as version 1, it also has the object as read in version 2.
func TestAutoscalerFacts(t *testing.T) {
	b, err := os.ReadFile("testdata/autoscalers.json")
	if err != nil {
		t.Fatal(err)
	}
	var facts []struct {
		Name       string
		V1, FromV2 *autoscalingv1.HorizontalPodAutoscaler
		V2, ToV2   *autoscalingv2.HorizontalPodAutoscaler
	}
	if err := json.Unmarshal(b, &facts); err != nil {
		t.Fatal(err)
	}
	x := lookup(t, "autoscaling", "v1", "horizontalpodautoscalers")
	for _, f := range facts {
		got, err := x.Conversion.FromStored(context.Background(), f.V2)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(text(t, got), text(t, f.FromV2)); d != "" {
			t.Errorf("%s, as version 1 (-got +want):\n%s", f.Name, d)
		}
		if f.V1 == nil {
			continue
		}
		got, err = x.Conversion.ToStored(context.Background(), f.V1)
		if err != nil {
			t.Fatal(err)
		}
		// Ignore the status: the server does not keep it for a new object.
		got.(*autoscalingv2.HorizontalPodAutoscaler).Status = f.ToV2.Status
		if d := cmp.Diff(text(t, got), text(t, f.ToV2)); d != "" {
			t.Errorf("%s, as version 2 (-got +want):\n%s", f.Name, d)
		}
	}
}

func text(t *testing.T, o any) string {
	t.Helper()
	b, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAutoscalerDropsAnnotations checks that version 2 drops the annotations of version 1.
func TestAutoscalerDropsAnnotations(t *testing.T) {
	o := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"autoscaling.alpha.kubernetes.io/metrics":              "[]",
		"autoscaling.alpha.kubernetes.io/scale-up-tolerance":   "1",
		"autoscaling.alpha.kubernetes.io/scale-down-tolerance": "1",
		"keep": "me",
	}}}
	lookup(t, "autoscaling", "v2", "horizontalpodautoscalers").Strategy.Default(o)
	if d := cmp.Diff(o.Annotations, map[string]string{"keep": "me"}); d != "" {
		t.Errorf("annotations (-got +want):\n%s", d)
	}
}

// TestAutoscalerRoundTrip checks that conversion to version 1 and back loses nothing.
func TestAutoscalerRoundTrip(t *testing.T) {
	r := testrand.New(t)
	x := lookup(t, "autoscaling", "v1", "horizontalpodautoscalers")
	for i := range 2000 {
		in := randomAutoscaler(r)
		autoscaling.DefaultBehavior(in.Spec.Behavior) // version 1 always has one
		v1, err := x.Conversion.FromStored(context.Background(), in.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		out, err := x.Conversion.ToStored(context.Background(), v1.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(out, in) {
			t.Fatalf("%d (-got +want):\n%s", i, cmp.Diff(text(t, out), text(t, in)))
		}
		again, err := x.Conversion.FromStored(context.Background(), out)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(text(t, again), text(t, v1)); d != "" {
			t.Fatalf("%d, version 1 again (-got +want):\n%s", i, d)
		}
	}
}

// TestEventRoundTrip checks that conversion between the two versions of Events loses nothing.
func TestEventRoundTrip(t *testing.T) {
	r := testrand.New(t)
	x := lookup(t, "events.k8s.io", "v1", "events")
	for i := range 500 {
		core, events := new(corev1.Event), new(eventsv1.Event)
		fill(r, reflect.ValueOf(core).Elem())
		fill(r, reflect.ValueOf(events).Elem())
		core.TypeMeta, events.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		for _, c := range []struct {
			in          runtime.Object
			there, back func(context.Context, runtime.Object) (runtime.Object, error)
		}{
			{core, x.Conversion.FromStored, x.Conversion.ToStored},
			{events, x.Conversion.ToStored, x.Conversion.FromStored},
		} {
			other, err := c.there(t.Context(), c.in.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.back(t.Context(), other)
			if err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(out, c.in) {
				t.Fatalf("%d, %T (-got +want):\n%s", i, c.in, cmp.Diff(text(t, out), text(t, c.in)))
			}
		}
	}
}

// TestConversionRefuses checks that converting an object of another kind returns an error and does
// not panic.
func TestConversionRefuses(t *testing.T) {
	for x := range builtin.Catalog().Types() {
		if x.Conversion == nil {
			continue
		}
		if o, err := x.Conversion.ToStored(context.Background(), new(corev1.Pod)); err == nil {
			t.Errorf("%s: a Pod became %T", x.GroupVersionKind(), o)
		}
		if o, err := x.Conversion.FromStored(context.Background(), new(corev1.Pod)); err == nil {
			t.Errorf("%s: a Pod became %T", x.GroupVersionKind(), o)
		}
	}
}

// fill sets every field of v, and the fields below, to a random value.
func fill(r *rand.Rand, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		*p = metav1.Unix(r.Int64N(1<<31), 0)
		return
	case *metav1.MicroTime:
		*p = metav1.NewMicroTime(time.UnixMicro(r.Int64N(1 << 50)))
		return
	case *metav1.FieldsV1:
		*p = *metav1.NewFieldsV1(`{"f:a":{}}`)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(word(r))
	case reflect.Int32, reflect.Int64:
		v.SetInt(1 + r.Int64N(1<<31-1))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(2), 2))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(r, key)
		fill(r, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		panic("fill: no rule for " + v.Type().String())
	}
}

func word(r *rand.Rand) string { return fmt.Sprintf("w%d", r.IntN(1000)) }

func quantity(r *rand.Rand) *resource.Quantity {
	q := resource.MustParse(fmt.Sprint(1+r.IntN(999)) + []string{"", "m", "k", "Mi"}[r.IntN(4)])
	return &q
}

// maybe returns nil half of the time.
func maybe[T any](r *rand.Rand, v *T) *T {
	if r.IntN(2) == 0 {
		return nil
	}
	return v
}

// randomAutoscaler returns an autoscaler of version 2 as the server stores it. The CPU metric,
// which version 1 has in a field, comes last.
func randomAutoscaler(r *rand.Rand) *autoscalingv2.HorizontalPodAutoscaler {
	o := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: word(r), Annotations: map[string]string{"a": word(r)}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: word(r), APIVersion: "apps/v1"},
			MinReplicas:    maybe(r, new(r.Int32N(9))),
			MaxReplicas:    r.Int32N(99),
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: maybe(r, new(r.Int64N(9))),
			LastScaleTime:      maybe(r, new(metav1.Unix(r.Int64N(1<<31), 0))),
			CurrentReplicas:    r.Int32N(9),
			DesiredReplicas:    r.Int32N(9),
		},
	}
	for range r.IntN(4) {
		o.Spec.Metrics = append(o.Spec.Metrics, randomMetric(r))
		o.Status.CurrentMetrics = append(o.Status.CurrentMetrics, randomStatus(r))
		o.Status.Conditions = append(o.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: "T", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(r.Int64N(1<<31), 0), Reason: word(r), Message: word(r),
		})
	}
	if len(o.Spec.Metrics) == 0 || r.IntN(2) == 0 {
		o.Spec.Metrics = append(o.Spec.Metrics, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(r.Int32N(100))},
			},
		})
	}
	rules := func() *autoscalingv2.HPAScalingRules {
		out := &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: maybe(r, new(r.Int32N(9))),
			SelectPolicy:               maybe(r, new(autoscalingv2.MinChangePolicySelect)),
			Tolerance:                  maybe(r, quantity(r)),
		}
		for range r.IntN(3) {
			out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy{
				Type: autoscalingv2.PercentScalingPolicy, Value: r.Int32N(9), PeriodSeconds: r.Int32N(9),
			})
		}
		return out
	}
	if up, down := maybe(r, rules()), maybe(r, rules()); up != nil || down != nil {
		o.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: up, ScaleDown: down}
	}
	return o
}

func randomIdentifier(r *rand.Rand) autoscalingv2.MetricIdentifier {
	return autoscalingv2.MetricIdentifier{
		Name:     word(r),
		Selector: maybe(r, &metav1.LabelSelector{MatchLabels: map[string]string{"k": word(r)}}),
	}
}

func randomMetric(r *rand.Rand) autoscalingv2.MetricSpec {
	value := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: quantity(r)}
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity(r)}
	either := []autoscalingv2.MetricTarget{value, average}[r.IntN(2)]
	percent := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(r.Int32N(100))}
	part := []autoscalingv2.MetricTarget{percent, average}[r.IntN(2)]
	switch r.IntN(5) {
	case 0:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceMemory, Target: part,
		}}
	case 1:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
			Name: corev1.ResourceCPU, Container: word(r), Target: part,
		}}
	case 2:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
			Metric: randomIdentifier(r), Target: average,
		}}
	case 3:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "K", Name: word(r)}, Metric: randomIdentifier(r), Target: either,
		}}
	default:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
			Metric: randomIdentifier(r), Target: either,
		}}
	}
}

func randomStatus(r *rand.Rand) autoscalingv2.MetricStatus {
	average := autoscalingv2.MetricValueStatus{AverageValue: quantity(r), AverageUtilization: maybe(r, new(r.Int32N(100)))}
	value := autoscalingv2.MetricValueStatus{Value: quantity(r), AverageValue: maybe(r, quantity(r))}
	switch r.IntN(5) {
	case 0:
		return autoscalingv2.MetricStatus{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: average,
		}}
	case 1:
		return autoscalingv2.MetricStatus{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{
			Name: corev1.ResourceCPU, Container: word(r), Current: average,
		}}
	case 2:
		return autoscalingv2.MetricStatus{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricStatus{
			Metric: randomIdentifier(r), Current: autoscalingv2.MetricValueStatus{AverageValue: quantity(r)},
		}}
	case 3:
		return autoscalingv2.MetricStatus{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricStatus{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "K", Name: word(r)}, Metric: randomIdentifier(r), Current: value,
		}}
	default:
		return autoscalingv2.MetricStatus{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricStatus{
			Metric: randomIdentifier(r), Current: value,
		}}
	}
}
