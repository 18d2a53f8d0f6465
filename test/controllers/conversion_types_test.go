package controllers

import (
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const ferryGroup = "ferries.tidemark.example.net"

// ferryHub is the version that all others are converted to and from.
type ferryHub struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		From string `json:"from"`
		To   string `json:"to"`
		Cars int64  `json:"cars"`
	} `json:"spec"`
}

// ferry is the older one: its route is one text.
type ferry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Route string `json:"route"`
		Cars  int64  `json:"cars,omitempty"`
	} `json:"spec"`
}

type ferryHubList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ferryHub `json:"items"`
}

type ferryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ferry `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (f *ferryHub) DeepCopyObject() runtime.Object { return copied(f) }

// DeepCopyObject implements runtime.Object.
func (f *ferry) DeepCopyObject() runtime.Object { return copied(f) }

// DeepCopyObject implements runtime.Object.
func (l *ferryHubList) DeepCopyObject() runtime.Object { return copied(l) }

// DeepCopyObject implements runtime.Object.
func (l *ferryList) DeepCopyObject() runtime.Object { return copied(l) }

// Hub implements conversion.Hub.
func (*ferryHub) Hub() {}

// ConvertTo implements conversion.Convertible.
func (f *ferry) ConvertTo(to conversion.Hub) error {
	from, until, ok := strings.Cut(f.Spec.Route, "-")
	if !ok {
		return errors.New("the route " + f.Spec.Route + " leads nowhere")
	}
	h := to.(*ferryHub)
	h.ObjectMeta = f.ObjectMeta
	h.Spec.From, h.Spec.To, h.Spec.Cars = from, until, f.Spec.Cars
	return nil
}

// ConvertFrom implements conversion.Convertible.
func (f *ferry) ConvertFrom(from conversion.Hub) error {
	h := from.(*ferryHub)
	f.ObjectMeta = h.ObjectMeta
	f.Spec.Route, f.Spec.Cars = h.Spec.From+"-"+h.Spec.To, h.Spec.Cars
	return nil
}

func ferryScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	made := runtime.NewScheme()
	for _, err := range []error{clientgoscheme.AddToScheme(made), apiextensionsv1.AddToScheme(made)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second := schema.GroupVersion{Group: ferryGroup, Version: "v1"}, schema.GroupVersion{Group: ferryGroup, Version: "v2"}
	made.AddKnownTypeWithName(first.WithKind("Ferry"), &ferry{})
	made.AddKnownTypeWithName(first.WithKind("FerryList"), &ferryList{})
	made.AddKnownTypeWithName(second.WithKind("Ferry"), &ferryHub{})
	made.AddKnownTypeWithName(second.WithKind("FerryList"), &ferryHubList{})
	metav1.AddToGroupVersion(made, first)
	metav1.AddToGroupVersion(made, second)
	return made
}

// ferryDefinition stores the first of two versions.
func ferryDefinition(hook *apiextensionsv1.WebhookClientConfig) *apiextensionsv1.CustomResourceDefinition {
	text, whole := apiextensionsv1.JSONSchemaProps{Type: "string"}, apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: new(float64(0))}
	version := func(name string, storage bool, required []string, members map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: storage, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"spec"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec": {Type: "object", Required: required, Properties: members},
			}},
		}}
	}
	counted := whole
	counted.Default = &apiextensionsv1.JSON{Raw: []byte("10")}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ferries." + ferryGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: ferryGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "ferries", Kind: "Ferry"},
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"}, ClientConfig: hook,
			}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				version("v1", true, []string{"route"}, map[string]apiextensionsv1.JSONSchemaProps{"route": text, "cars": counted}),
				version("v2", false, []string{"from", "to", "cars"}, map[string]apiextensionsv1.JSONSchemaProps{"from": text, "to": text, "cars": whole}),
			},
		},
	}
}
