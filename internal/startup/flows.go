package startup

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const flowGroup = "flowcontrol.apiserver.k8s.io"

// Flows maintains the FlowSchemas and PriorityLevelConfigurations that every server has, and the
// condition Dangling of all FlowSchemas. It is safe for concurrent use.
type Flows struct {
	c               Config
	schemas, levels *resource.Type
	wanted          map[flowName]desired
}

// flowName identifies a schema or a level.
type flowName struct{ collection, name string }

// NewFlows returns the Flows of a server. Of the configuration it needs Registry, Catalog and Now.
func NewFlows(c Config) (*Flows, error) {
	f := &Flows{
		c: c, wanted: map[flowName]desired{},
		schemas: c.Catalog.Lookup(flowGroup, "v1", "flowschemas"),
		levels:  c.Catalog.Lookup(flowGroup, "v1", "prioritylevelconfigurations"),
	}
	err := each(c.Catalog, func(w desired) {
		if w.target.Type == f.schemas || w.target.Type == f.levels {
			f.wanted[flowName{w.target.Type.Collection, w.target.Name}] = w
		}
	})
	return f, err
}

// Schemas returns the collection of FlowSchemas.
func (f *Flows) Schemas() string { return f.schemas.Collection }

// Levels returns the collection of PriorityLevelConfigurations.
func (f *Flows) Levels() string { return f.levels.Collection }

// Names yields the objects that every server has, by collection and name.
func (f *Flows) Names(yield func(collection, name string) bool) {
	for w := range f.wanted {
		if !yield(w.collection, w.name) {
			return
		}
	}
}

// Ensure restores an object of one of the collections if it is one that every server has, and
// deletes it if an earlier version had it. Objects of users are left alone.
func (f *Flows) Ensure(ctx context.Context, collection, name string) error {
	w, wanted := f.wanted[flowName{collection, name}]
	if !wanted {
		return f.removeUnwanted(ctx, collection, name)
	}
	stored := f.c.stored(w.target)
	if stored != nil && w.same(stored) {
		return nil
	}
	return f.c.ensure(ctx, w, stored)
}

// removeUnwanted deletes an object that the server is to update, and does not know.
func (f *Flows) removeUnwanted(ctx context.Context, collection, name string) error {
	t := registry.Target{Type: f.schemas, Name: name}
	if collection == f.levels.Collection {
		t.Type = f.levels
	}
	o := f.c.stored(t)
	if o == nil {
		return nil
	}
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(o.Bytes(), &head); err != nil {
		return err
	}
	if update, _ := strconv.ParseBool(head.Annotations[flowcontrolv1.AutoUpdateAnnotationKey]); !update || head.DeletionTimestamp != nil {
		return nil
	}
	version := head.ResourceVersion
	_, err := f.c.Registry.Delete(ctx, t, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &head.UID, ResourceVersion: &version}}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Refers returns the level that a FlowSchema names.
func Refers(o *store.Object) (level string, err error) {
	s, err := registry.Decode[flowcontrolv1.FlowSchema](o)
	if err != nil {
		return "", err
	}
	return s.Spec.PriorityLevelConfiguration.Name, nil
}

// EnsureStatus sets the condition Dangling of a FlowSchema.
func (f *Flows) EnsureStatus(ctx context.Context, name string) error {
	o := f.c.stored(registry.Target{Type: f.schemas, Name: name})
	if o == nil {
		return nil
	}
	s, err := registry.Decode[flowcontrolv1.FlowSchema](o)
	if err != nil {
		return err
	}
	level := s.Spec.PriorityLevelConfiguration.Name
	want := dangling(level, f.c.stored(registry.Target{Type: f.levels, Name: level}) != nil)
	for _, have := range s.Status.Conditions {
		if have.Type == want.Type && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
			return nil
		}
	}
	return f.c.setDangling(ctx, registry.Target{Type: f.schemas, Name: name}, want)
}

// dangling returns the condition of a schema whose level exists or not.
func dangling(level string, found bool) flowcontrolv1.FlowSchemaCondition {
	c := flowcontrolv1.FlowSchemaCondition{Type: flowcontrolv1.FlowSchemaConditionDangling}
	if found {
		c.Status, c.Reason = flowcontrolv1.ConditionFalse, "Found"
		c.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level)
		return c
	}
	c.Status, c.Reason = flowcontrolv1.ConditionTrue, "NotFound"
	c.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)
	return c
}

// notDangling sets the condition of a new schema of the server, whose level the server creates too.
func (c Config) notDangling(ctx context.Context, w desired) error {
	var schema flowcontrolv1.FlowSchema
	if err := json.Unmarshal(w.body(), &schema); err != nil {
		return err
	}
	return c.setDangling(ctx, w.target, dangling(schema.Spec.PriorityLevelConfiguration.Name, true))
}

// setDangling writes a condition. A deleted schema is no error.
func (c Config) setDangling(ctx context.Context, t registry.Target, condition flowcontrolv1.FlowSchemaCondition) error {
	condition.LastTransitionTime = c.now()
	body, err := json.Marshal(map[string]any{
		"apiVersion": t.Type.GroupVersion().String(), "kind": t.Type.Kind,
		"metadata": map[string]string{"name": t.Name},
		"status":   flowcontrolv1.FlowSchemaStatus{Conditions: []flowcontrolv1.FlowSchemaCondition{condition}},
	})
	if err != nil {
		return err
	}
	force := true
	t.Subresource = "status"
	_, err = c.Registry.Patch(ctx, t, registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: body}, registry.WriteOptions{FieldManager: flowConsumer, Force: &force})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
