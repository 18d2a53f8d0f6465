package controller_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	schemas = "flowschemas.flowcontrol.apiserver.k8s.io"
	levels  = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
)

// flowWorld has the schemas and levels that every server has.
func flowWorld(t *testing.T) *world {
	w := newWorld(t, "-*", "*")
	w.flows = true
	w.restart()
	w.settle()
	return w
}

// schema returns a stored schema.
func (w *world) schema(name string) *flowcontrolv1.FlowSchema {
	w.Helper()
	s := &flowcontrolv1.FlowSchema{}
	if o := w.get(schemas, name); o == nil {
		w.Fatalf("the schema %s is gone", name)
	} else if err := json.Unmarshal(o.Bytes(), s); err != nil {
		w.Fatal(err)
	}
	return s
}

// wantDangling compares the condition of a schema.
func (w *world) wantDangling(name, want string) {
	w.Helper()
	w.settle()
	var all []string
	for _, c := range w.schema(name).Status.Conditions {
		all = append(all, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	if got := strings.Join(all, "; "); got != want {
		w.Errorf("%s: %q, want %q", name, got, want)
	}
}

// TestFlowsDangling: the condition of a schema follows its level.
func TestFlowsDangling(t *testing.T) {
	w := flowWorld(t)
	const (
		found   = `Dangling False Found: This FlowSchema references the PriorityLevelConfiguration object named "own" and it exists`
		missing = `Dangling True NotFound: This FlowSchema references the PriorityLevelConfiguration object named "own" but there is no such object`
	)
	w.make(schemas, "", `{"metadata":{"name":"mine"},"spec":{"priorityLevelConfiguration":{"name":"own"}}}`)
	w.wantDangling("mine", missing)
	w.make(levels, "", `{"metadata":{"name":"own"},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}`)
	w.wantDangling("mine", found)
	w.change(schemas, "mine", "status", func(o metav1.Object) {
		o.(*flowcontrolv1.FlowSchema).Status.Conditions[0].Status = flowcontrolv1.ConditionUnknown
	})
	w.wantDangling("mine", found)
	w.erase(levels, "own", "")
	w.wantDangling("mine", missing)
	if by := w.schema("mine").ManagedFields; by[0].Manager != "api-priority-and-fairness-config-consumer-v1" {
		t.Errorf("the status belongs to %+v", by)
	}
	w.wantDangling("catch-all", strings.ReplaceAll(found, "own", "catch-all"))
}

// TestFlowsRestored: the default objects of every server return after a change, unless their
// annotation keeps it. Objects that an earlier version had are deleted.
func TestFlowsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := flowWorld(t)
		for collection, names := range map[string][]string{schemas: {"exempt", "catch-all", "global-default"}, levels: {"exempt", "catch-all", "system"}} {
			for _, name := range names {
				w.erase(collection, name, "")
				w.settle()
				w.want(collection, name, true)
			}
		}
		w.make(schemas, "", `{"metadata":{"name":"old","annotations":{"apf.kubernetes.io/autoupdate-spec":"true"}},"spec":{"priorityLevelConfiguration":{"name":"exempt"}}}`)
		w.make(schemas, "", `{"metadata":{"name":"mine"},"spec":{"priorityLevelConfiguration":{"name":"exempt"}}}`)
		w.settle()
		w.want(schemas, "old", false)
		w.want(schemas, "mine", true)

		precede := func(n int32, annotation string) {
			w.change(schemas, "global-default", "", func(o metav1.Object) {
				o.(*flowcontrolv1.FlowSchema).Spec.MatchingPrecedence = n
				o.SetAnnotations(map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: annotation, "a": "b"})
			})
			w.settle()
		}
		want := func(n int32, annotation string) {
			t.Helper()
			if s := w.schema("global-default"); s.Spec.MatchingPrecedence != n || s.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] != annotation || s.Annotations["a"] != "b" {
				t.Errorf("precedence %d, annotations %v; want %d, %q", s.Spec.MatchingPrecedence, s.Annotations, n, annotation)
			}
		}
		precede(9800, "true")
		want(9900, "true")
		precede(9801, "true")
		want(9801, "true") // it was changed back a moment ago
		time.Sleep(11 * time.Second)
		w.settle()
		want(9900, "true")
		time.Sleep(11 * time.Second)
		precede(9802, "false")
		want(9802, "false")
		precede(9803, "perhaps") // its generation shows that it was changed
		want(9803, "false")
	})
}
