package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/builtin/admissionregistration"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// kinds are the kinds of objects that the files of a plugin may have.
type kinds struct {
	what             string // policy or webhook, for messages
	objects, binding *kind  // binding is nil for webhooks
}

// kind has the rules of one kind.
type kind struct {
	name     string
	defaults func(runtime.Object)
	// validate returns the errors that the object would have as a stored one. restrict returns an error for
	// what files cannot have.
	validate func(runtime.Object) field.ErrorList
	restrict func(runtime.Object) error
}

// The names of the plugins that have files.
const (
	MutatingPolicies   = "MutatingAdmissionPolicy"
	MutatingWebhooks   = "MutatingAdmissionWebhook"
	ValidatingPolicies = "ValidatingAdmissionPolicy"
	ValidatingWebhooks = "ValidatingAdmissionWebhook"
)

var kindsOf = map[string]*kinds{
	MutatingPolicies: {
		what: "policy",
		objects: of("MutatingAdmissionPolicy", admissionregistration.DefaultMutatingPolicy, admissionregistration.ValidateMutatingPolicy,
			func(p *admissionregistrationv1.MutatingAdmissionPolicy) error {
				return checkPolicy("MutatingAdmissionPolicy", p.Name, p.Spec.ParamKind)
			}),
		binding: of("MutatingAdmissionPolicyBinding", admissionregistration.DefaultMutatingBinding, admissionregistration.ValidateMutatingBinding,
			func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) error {
				return checkBinding(b.Name, b.Spec.PolicyName, b.Spec.ParamRef)
			}),
	},
	MutatingWebhooks: {
		what: "webhook",
		objects: of("MutatingWebhookConfiguration", admissionregistration.DefaultMutatingWebhooks, admissionregistration.ValidateMutatingWebhooks,
			func(c *admissionregistrationv1.MutatingWebhookConfiguration) error {
				for i := range c.Webhooks {
					if err := checkClient(c.Name, c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig); err != nil {
						return err
					}
				}
				return nil
			}),
	},
	ValidatingPolicies: {
		what: "policy",
		objects: of("ValidatingAdmissionPolicy", admissionregistration.DefaultValidatingPolicy, admissionregistration.ValidateValidatingPolicy,
			func(p *admissionregistrationv1.ValidatingAdmissionPolicy) error {
				return checkPolicy("ValidatingAdmissionPolicy", p.Name, p.Spec.ParamKind)
			}),
		binding: of("ValidatingAdmissionPolicyBinding", admissionregistration.DefaultValidatingBinding, admissionregistration.ValidateValidatingBinding,
			func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) error {
				return checkBinding(b.Name, b.Spec.PolicyName, b.Spec.ParamRef)
			}),
	},
	ValidatingWebhooks: {
		what: "webhook",
		objects: of("ValidatingWebhookConfiguration", admissionregistration.DefaultValidatingWebhooks, admissionregistration.ValidateValidatingWebhooks,
			func(c *admissionregistrationv1.ValidatingWebhookConfiguration) error {
				for i := range c.Webhooks {
					if err := checkClient(c.Name, c.Webhooks[i].Name, &c.Webhooks[i].ClientConfig); err != nil {
						return err
					}
				}
				return nil
			}),
	},
}

// of makes a kind of the functions of its type.
func of[T runtime.Object](name string, defaults func(T), validate func(T) field.ErrorList, restrict func(T) error) *kind {
	return &kind{
		name:     name,
		defaults: func(o runtime.Object) { defaults(o.(T)) },
		validate: func(o runtime.Object) field.ErrorList { return validate(o.(T)) },
		restrict: func(o runtime.Object) error { return restrict(o.(T)) },
	}
}

func checkPolicy(kind, name string, params *admissionregistrationv1.ParamKind) error {
	if params != nil {
		return fmt.Errorf("%s %q: spec.paramKind is not supported for static manifests", kind, name)
	}
	return nil
}

func checkBinding(name, policy string, params *admissionregistrationv1.ParamRef) error {
	switch {
	case !strings.HasSuffix(policy, Suffix):
		return fmt.Errorf("binding %q: spec.policyName %q must end with %q", name, policy, Suffix)
	case params != nil:
		return fmt.Errorf("binding %q: spec.paramRef is not supported for static manifests", name)
	}
	return nil
}

func checkClient(configuration, webhook string, c *admissionregistrationv1.WebhookClientConfig) error {
	switch {
	case c.Service != nil:
		return fmt.Errorf("webhook %q in %q: clientConfig.service is not supported for static manifests; use clientConfig.url instead", webhook, configuration)
	case c.URL == nil || *c.URL == "":
		return fmt.Errorf("webhook %q in %q: clientConfig.url is required for static manifests", webhook, configuration)
	}
	return nil
}

// decoder decodes documents. Unknown and repeated fields are errors.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		panic(err) // the types are constants of the library
	}
	scheme.AddKnownTypes(schema.GroupVersion{Version: "v1"}, &metav1.List{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// reading collects the objects of the files of a plugin.
type reading struct {
	*kinds
	file string // that is read
	// seen are the files of names, for each kind.
	seen     map[*kind]map[string]string
	policies map[*store.Object]string // by binding
	set      Set
}

// read returns the objects of files.
func (k *kinds) read(files []file) (*Set, error) {
	r := &reading{kinds: k, seen: map[*kind]map[string]string{k.objects: {}, k.binding: {}}, policies: map[*store.Object]string{}}
	for i := range files {
		r.file = files[i].path
		docs, err := files[i].documents()
		if err != nil {
			return nil, fmt.Errorf("failed to split YAML documents in file %q: %w", r.file, err)
		}
		for _, doc := range docs {
			if err := r.document(doc); err != nil {
				return nil, fmt.Errorf("error loading %s: %w", r.file, err)
			}
		}
	}
	for _, b := range r.set.Bindings {
		if policy := r.policies[b]; r.seen[k.objects][policy] == "" {
			return nil, fmt.Errorf("binding %q references policy %q which does not exist in the manifest directory", b.Key, policy)
		}
	}
	byName := func(a, b *store.Object) int { return strings.Compare(a.Key, b.Key) }
	slices.SortFunc(r.set.Objects, byName)
	slices.SortFunc(r.set.Bindings, byName)
	return &r.set, nil
}

// document adds the objects of a document: one object, or a list of them.
func (r *reading) document(doc []byte) error {
	o, kind, err := decoder.Decode(doc, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		var sent metav1.TypeMeta
		if yaml.Unmarshal(doc, &sent) != nil {
			return err
		}
		return r.unsupported(sent.GroupVersionKind())
	case err != nil:
		return err
	}
	if list, ok := o.(*metav1.List); ok {
		for i := range list.Items {
			if err := r.document(list.Items[i].Raw); err != nil {
				return fmt.Errorf("failed to decode list item: %w", err)
			}
		}
		return nil
	}
	of, isList := r.kindOf(strings.TrimSuffix(kind.Kind, "List")), strings.HasSuffix(kind.Kind, "List")
	if of == nil {
		return r.unsupported(*kind)
	}
	if !isList {
		return r.add(of, o)
	}
	items, err := meta.ExtractList(o)
	if err != nil {
		return err
	}
	for _, item := range items {
		if err := r.add(of, item); err != nil {
			return err
		}
	}
	return nil
}

func (k *kinds) kindOf(name string) *kind {
	switch {
	case name == k.objects.name:
		return k.objects
	case k.binding != nil && name == k.binding.name:
		return k.binding
	}
	return nil
}

// unsupported returns the error for a kind that the files of the plugin cannot have.
func (k *kinds) unsupported(kind schema.GroupVersionKind) error {
	wanted := k.objects.name
	if k.binding != nil {
		wanted += ", " + k.binding.name
	}
	version, name := kind.ToAPIVersionAndKind()
	return fmt.Errorf("unsupported resource type %s of %s: want %s of %s, lists of them, or List of v1",
		name, version, wanted, admissionregistrationv1.SchemeGroupVersion)
}

// add checks an object and adds it.
func (r *reading) add(k *kind, o runtime.Object) error {
	about := o.(metav1.Object)
	name := about.GetName()
	k.defaults(o)
	at := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(about, false, apivalidation.NameIsDNSSubdomain, at)
	if errs = append(errs, k.validate(o)...); len(errs) > 0 {
		return fmt.Errorf("%s %q: %w", k.name, name, errs.ToAggregate())
	}
	seen := r.seen[k]
	switch before := seen[name]; {
	case !strings.HasSuffix(name, Suffix):
		return fmt.Errorf("%q must have a name ending with %q", name, Suffix)
	case before != "":
		return fmt.Errorf("duplicate name %q (previously seen in %q)", name, before)
	}
	seen[name] = r.file
	if err := k.restrict(o); err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	added := &store.Object{Key: name, Held: text}
	if k == r.binding {
		r.set.Bindings = append(r.set.Bindings, added)
		r.policies[added] = policyOf(o)
		return nil
	}
	r.set.Objects = append(r.set.Objects, added)
	return nil
}

// policyOf returns the name of the policy of a binding.
func policyOf(o runtime.Object) string {
	if b, ok := o.(*admissionregistrationv1.MutatingAdmissionPolicyBinding); ok {
		return b.Spec.PolicyName
	}
	return o.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding).Spec.PolicyName
}
