package crds

import (
	"encoding/json"
	"testing"

	rolloutsv1alpha1 "github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// typed knows the Go types of six projects.
func typed(t *testing.T) *runtime.Scheme {
	t.Helper()
	made := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		rolloutsv1alpha1.AddToScheme, sourcev1.AddToScheme, snapshotv1.AddToScheme, monitoringv1.AddToScheme, gatewayv1.Install,
	} {
		if err := add(made); err != nil {
			t.Fatal(err)
		}
	}
	karpenter := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"} // adds itself to client-go's scheme alone
	made.AddKnownTypes(karpenter, &karpenterv1.NodePool{}, &karpenterv1.NodePoolList{}, &karpenterv1.NodeClaim{}, &karpenterv1.NodeClaimList{})
	metav1.AddToGroupVersion(made, karpenter)
	return made
}

// roundTrips counts the outcomes for the objects of a kind.
type roundTrips struct{ stored, refused, unlike int }

// typedClient stores objects as Go types, and reads them again.
type typedClient struct {
	client.Client
	kind schema.GroupVersionKind
	roundTrips
}

// trip decodes an object into the Go type, stores it, and compares the result of a read.
func (c *typedClient) trip(t *testing.T, o tree) {
	t.Helper()
	of, err := c.Scheme().New(c.kind)
	if err != nil {
		t.Fatal(err)
	}
	sent := of.(client.Object)
	if json.Unmarshal(bytesOf(t, o), sent) != nil { // an invalid quantity
		c.unlike++
		return
	}
	sent.SetNamespace("default")
	want := asTree(t, sent)
	switch err := c.Create(t.Context(), sent); {
	case apierrors.IsInvalid(err):
		c.refused++
		return
	case err != nil:
		t.Errorf("%v: %v", c.kind, err)
		return
	}
	c.stored++
	read, err := c.Scheme().New(c.kind)
	if err != nil {
		t.Fatal(err)
	}
	got := read.(client.Object)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(sent), got); err != nil {
		t.Fatal(err)
	}
	there := asTree(t, got)
	if lost := missing(want, there, ""); lost != "" {
		t.Errorf("%v %s lost %s\nsent %s\nread %s", c.kind, sent.GetName(), lost, bytesOf(t, want), bytesOf(t, there))
	}
	if err := c.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
}

// asTree returns an object without the fields that the server sets.
func asTree(t *testing.T, o client.Object) tree {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var all tree
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kind", "apiVersion", "status"} { // the client drops two, and the status is a write of its own
		delete(all, name)
	}
	metadata := all["metadata"].(tree)
	all["metadata"] = tree{"name": metadata["name"], "labels": metadata["labels"], "annotations": metadata["annotations"]}
	return all
}

// TestGoTypesRoundTrip: the generated Go types of six projects, filled with their
// samples and at random, come back as they were sent.
func TestGoTypesRoundTrip(t *testing.T) {
	tier.Full(t)
	r, known := random(t), typed(t)
	if err := apiextensionsv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	config := servers.Quick(servers.Start(t).RESTConfig())
	s := newSender(t, config)
	for _, d := range corpus(t) {
		if known.IsGroupRegistered(d.group) {
			s.send(t, request{"POST", definitions, "", d.body})
		}
	}
	made, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	clients := map[schema.GroupVersionKind]*typedClient{}
	bySample(t, func(t *testing.T, d *definition, each func(func(n int, path string, o tree))) {
		each(func(_ int, _ string, o tree) {
			kind := schema.FromAPIVersionAndKind(o["apiVersion"].(string), d.kind)
			if !known.Recognizes(kind) {
				return
			}
			if clients[kind] == nil {
				clients[kind] = &typedClient{Client: made, kind: kind}
			}
			clients[kind].trip(t, o)
		})
	})
	kinds, stored := 0, 0
	for _, d := range corpus(t) {
		for _, v := range d.versions {
			kind := schema.GroupVersionKind{Group: d.group, Version: v.name, Kind: d.kind}
			if !known.Recognizes(kind) {
				continue
			}
			c := clients[kind]
			if c == nil {
				c = &typedClient{Client: made, kind: kind}
			}
			for range 20 {
				m := maker{Rand: r, optional: pick(r, []float64{0, .1, .3, .6}), depth: pick(r, []int{3, 5, 8})}
				c.trip(t, m.object(v.schema, d.group+"/"+v.name, d.kind, "random"))
			}
			t.Logf("%v: %+v", kind, c.roundTrips)
			if kinds++; c.stored > 0 {
				stored++
			}
		}
	}
	if kinds < 20 || stored < kinds*3/4 {
		t.Errorf("of %d kinds %d were stored", kinds, stored)
	}
}
