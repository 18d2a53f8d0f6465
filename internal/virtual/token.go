package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/satoken"
)

const (
	defaultSeconds = 3600
	minSeconds     = 600
	maxSeconds     = 1 << 32
)

var tokenRequests = schema.GroupKind{Group: authenticationGroup, Kind: "TokenRequest"}

// tokenRequest issues a token for a service account. A dry-run issues one, too, since no object is
// stored in either case. The first token creates the key in pki/serviceaccount.pem, also in a
// dry-run.
func (c *Config) tokenRequest(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	request := call.Sent.(*authenticationv1.TokenRequest)
	managed, err := call.ManagedFields(ctx)
	if err != nil {
		return nil, err
	}
	if request.Name != "" && request.Name != call.Target.Name {
		return nil, apierrors.NewInvalid(tokenRequests, call.Target.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), request.Name, "must match the service account name if specified"),
		})
	}
	account, err := c.read(ctx, call.Registry, "serviceaccounts", call.Target.Namespace, call.Target.Name)
	if err != nil {
		return nil, err
	}
	if request.UID != "" && request.UID != account.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: tokenRequests.Group, Resource: tokenRequests.Kind}, account.GetName(),
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, account.GetUID()))
	}
	c.complete(request, account)
	if err := checkSpec(&request.Spec); err != nil {
		return nil, err
	}
	if err := call.Admit(ctx); err != nil {
		return nil, err
	}
	s := satoken.Subject{
		Namespace:      account.GetNamespace(),
		ServiceAccount: satoken.Ref{Name: account.GetName(), UID: string(account.GetUID())},
	}
	if err := c.bind(ctx, call.Registry, request.Spec.BoundObjectRef, &s); err != nil {
		return nil, err
	}
	if err := c.issue(call, request, s); err != nil {
		return nil, err
	}
	request.ManagedFields = managed
	return request, nil
}

// complete sets the defaults of a TokenRequest, and its metadata. Validating admission sees them.
func (c *Config) complete(request *authenticationv1.TokenRequest, account metav1.Object) {
	if request.Spec.ExpirationSeconds == nil || *request.Spec.ExpirationSeconds == 0 {
		request.Spec.ExpirationSeconds = ptr.To[int64](defaultSeconds)
	}
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = c.Tokens.Audiences()
	}
	request.Name, request.Namespace, request.UID = account.GetName(), account.GetNamespace(), account.GetUID()
	request.CreationTimestamp = c.now()
	request.Status = authenticationv1.TokenRequestStatus{}
}

// issue completes a request with its token. A lifetime above the limit is cut, with a warning.
func (c *Config) issue(call *registry.VirtualRequest, request *authenticationv1.TokenRequest, s satoken.Subject) error {
	asked := *request.Spec.ExpirationSeconds
	issued, err := c.Tokens.Issue(s, request.Spec.Audiences, time.Duration(asked)*time.Second)
	if long := new(satoken.TooLongError); errors.As(err, &long) { // only the audiences can be long
		return apierrors.NewInvalid(tokenRequests, s.ServiceAccount.Name, field.ErrorList{
			{Type: field.ErrorTypeTooLong, Field: "spec.audiences", BadValue: field.OmitValueType{}, Detail: long.Error()},
		})
	}
	if err != nil {
		return err
	}
	call.Annotate("authentication.kubernetes.io/issued-credential-id", issued.CredentialID)
	if given := int64(issued.Life / time.Second); given != asked {
		call.Warn(fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, given))
		request.Spec.ExpirationSeconds = &given
	}
	request.CreationTimestamp = metav1.NewTime(issued.From.UTC())
	request.Status = authenticationv1.TokenRequestStatus{Token: issued.Token, ExpirationTimestamp: metav1.NewTime(issued.From.Add(issued.Life).UTC())}
	return nil
}

// checkSpec returns the error of a request that is not valid.
func checkSpec(s *authenticationv1.TokenRequestSpec) error {
	errs, alone := checkAttestations(s)
	path, seconds := field.NewPath("spec", "expirationSeconds"), *s.ExpirationSeconds
	switch {
	case alone:
	case seconds < minSeconds:
		errs = slices.Insert(errs, 0, field.Invalid(path, seconds, "may not specify a duration less than 10 minutes"))
	case seconds > maxSeconds:
		errs = slices.Insert(errs, 0, field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(tokenRequests, "", errs)
}

// bind binds a token to an object, if there is a reference.
func (c *Config) bind(ctx context.Context, r *registry.Registry, ref *authenticationv1.BoundObjectReference, s *satoken.Subject) error {
	if ref == nil {
		return nil
	}
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	kind := group.WithKind(ref.Kind)
	var object metav1.Object
	var to **satoken.Ref
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		to = &s.Pod
		if object, err = c.read(ctx, r, "pods", s.Namespace, ref.Name); err != nil {
			return err
		}
		if err := c.bindPod(r, object.(*corev1.Pod), s); err != nil {
			return err
		}
	case schema.GroupKind{Kind: "Secret"}:
		to = &s.Secret
		if object, err = c.read(ctx, r, "secrets", s.Namespace, ref.Name); err != nil {
			return err
		}
	case schema.GroupKind{Kind: "Node"}:
		to = &s.Node
		if object, err = c.read(ctx, r, "nodes", "", ref.Name); err != nil {
			return err
		}
	default:
		return apierrors.NewBadRequest(cannotBind(kind))
	}
	if ref.UID != "" && ref.UID != object.GetUID() {
		return uidConflict(kind, ref)
	}
	*to = &satoken.Ref{Name: object.GetName(), UID: string(object.GetUID())}
	return nil
}

// bindPod checks the Pod of a token, and adds the Pod's node to the token.
func (c *Config) bindPod(r *registry.Registry, pod *corev1.Pod, s *satoken.Subject) error {
	if pod.Spec.ServiceAccountName != s.ServiceAccount.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", s.ServiceAccount.Name))
	}
	if pod.Spec.NodeName == "" {
		return nil
	}
	s.Node = &satoken.Ref{Name: pod.Spec.NodeName}
	if node, ok := registry.IdentityOf(r.Store.Any(), c.target("nodes", "", pod.Spec.NodeName)); ok {
		s.Node.UID = node.UID
	}
	return nil
}

func uidConflict(kind schema.GroupVersionKind, ref *authenticationv1.BoundObjectReference) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, ref.Name,
		fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
}

// read returns an object of the core group.
func (c *Config) read(ctx context.Context, r *registry.Registry, name, namespace, object string) (metav1.Object, error) {
	o, err := r.Read(ctx, c.target(name, namespace, object))
	if err != nil {
		return nil, err
	}
	meta, ok := o.(metav1.Object)
	if !ok {
		return nil, errors.New("an object without metadata")
	}
	return meta, nil
}

func (c *Config) target(name, namespace, object string) registry.Target {
	return registry.Target{Type: c.Catalog().Lookup("", "v1", name), Namespace: namespace, Name: object}
}
