package controllers

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var shipVersion = schema.GroupVersion{Group: "ships.tidemark.example.net", Version: "v1"}

// ship is a custom resource as a Go type.
type ship struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Crew int64  `json:"crew"`
		Flag string `json:"flag,omitempty"`
	} `json:"spec"`
	Status struct {
		Aboard     int64              `json:"aboard,omitempty"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

type shipList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ship `json:"items"`
}

func copied[T any](from *T) *T {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	to := new(T)
	if err := json.Unmarshal(text, to); err != nil {
		panic(err)
	}
	return to
}

// DeepCopyObject implements runtime.Object.
func (s *ship) DeepCopyObject() runtime.Object { return copied(s) }

// DeepCopyObject implements runtime.Object.
func (l *shipList) DeepCopyObject() runtime.Object { return copied(l) }

func shipScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	made := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(made); err != nil {
		t.Fatal(err)
	}
	made.AddKnownTypeWithName(shipVersion.WithKind("Ship"), &ship{})
	made.AddKnownTypeWithName(shipVersion.WithKind("ShipList"), &shipList{})
	metav1.AddToGroupVersion(made, shipVersion)
	return made
}

func shipDefinition() *apiextensionsv1.CustomResourceDefinition {
	whole := apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: new(float64(0))}
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	condition := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"type", "status"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": {Type: "string", Format: "date-time"}, "observedGeneration": whole,
	}}
	conditions := apiextensionsv1.JSONSchemaProps{Type: "array", XListType: new("map"), XListMapKeys: []string{"type"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ships." + shipVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: shipVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "ships", Kind: "Ship"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"crew": whole, "flag": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"none"`)}},
					}},
					"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"aboard": whole, "conditions": conditions}},
				}}},
			}},
		},
	}
}

// captain reconciles ships: a ConfigMap that a ship owns lists its crew, by
// server-side apply, and a finalizer has it written down when the ship goes.
type captain struct {
	client.Client
	gone chan<- string
}

const moored = "ships.tidemark.example.net/moored"

func (c *captain) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	s := &ship{}
	if err := c.Get(ctx, request.NamespacedName, s); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(s, moored) {
			if err := c.Update(ctx, s); err != nil {
				return reconcile.Result{}, err
			}
			c.gone <- s.Name
		}
		return reconcile.Result{}, nil
	}
	if controllerutil.AddFinalizer(s, moored) {
		return reconcile.Result{}, c.Update(ctx, s)
	}
	roll := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"flag": s.Spec.Flag}}}
	roll.SetName(s.Name)
	roll.SetNamespace(s.Namespace)
	if err := controllerutil.SetControllerReference(s, roll, c.Scheme()); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(roll), client.FieldOwner("captain"), client.ForceOwnership); err != nil {
		return reconcile.Result{}, err
	}
	s.Status.Aboard = s.Spec.Crew
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Aboard", ObservedGeneration: s.Generation})
	return reconcile.Result{}, c.Status().Update(ctx, s)
}

// TestCustomManager: envtest installs a definition, and a manager reconciles objects of
// it as a Go type.
func TestCustomManager(t *testing.T) {
	tier.Full(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		installed, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{shipDefinition()}})
		if err != nil || len(installed) != 1 {
			t.Fatalf("InstallCRDs: %v", err)
		}
		known := shipScheme(t)
		c, err := client.NewWithWatch(s.Config, client.Options{Scheme: known})
		if err != nil {
			t.Fatal(err)
		}
		m, err := ctrl.NewManager(s.Config, ctrl.Options{Scheme: known, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}})
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan string, 8)
		if err := ctrl.NewControllerManagedBy(m).For(&ship{}).Owns(&corev1.ConfigMap{}).Complete(&captain{m.GetClient(), gone}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := envtest.UninstallCRDs(s.Config, envtest.CRDInstallOptions{CRDs: installed}); err != nil {
				t.Error(err)
			}
		})
		sail(t, c, s.Namespace, gone)
	})
}

// sail makes a ship, changes it and lets it go.
func sail(t *testing.T, c client.WithWatch, namespace string, gone <-chan string) {
	t.Helper()
	ctx := t.Context()
	w, err := c.Watch(ctx, &shipList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s := &ship{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vasa"}}
	s.Spec.Crew = 5
	if err := c.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	until := func(crew, generation int64) {
		t.Helper()
		for e := range w.ResultChan() {
			got, ok := e.Object.(*ship)
			ready := ok && meta.FindStatusCondition(got.Status.Conditions, "Ready") != nil
			if ready && got.Status.Aboard == crew && got.Status.Conditions[0].ObservedGeneration == generation {
				return
			}
		}
		t.Fatal("the watch ended")
	}
	until(5, 1)
	roll := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), roll); err != nil || roll.Data["flag"] != "none" || len(roll.OwnerReferences) != 1 || roll.OwnerReferences[0].Kind != "Ship" {
		t.Fatalf("the roll is %v, %v", roll, err)
	}
	if err := c.Patch(ctx, s, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"crew":7,"flag":"se"}}`))); err != nil {
		t.Fatal(err)
	}
	until(7, 2)
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), roll); err != nil || roll.Data["flag"] != "se" {
		t.Fatalf("the roll is %v, %v", roll.Data, err)
	}
	if err := c.Delete(ctx, s); err != nil {
		t.Fatal(err)
	}
	if name := <-gone; name != "vasa" {
		t.Fatalf("%s is gone", name)
	}
	for e := range w.ResultChan() {
		if e.Type == "DELETED" {
			break
		}
	}
	if err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(s), s)); err != nil || client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}
