package virtual

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/uuid"
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
	account, err := c.read(ctx, call.Registry, "serviceaccounts", call.Target.Namespace, call.Target.Name)
	if err != nil {
		return nil, err
	}
	request := call.Sent.(*authenticationv1.TokenRequest)
	if err := checkAccount(request, account); err != nil {
		return nil, err
	}
	seconds := int64(defaultSeconds)
	if given := request.Spec.ExpirationSeconds; given != nil && *given != 0 {
		seconds = *given
	}
	if err := checkSeconds(seconds); err != nil {
		return nil, err
	}
	s := satoken.Subject{
		Namespace:      account.GetNamespace(),
		ServiceAccount: satoken.Ref{Name: account.GetName(), UID: string(account.GetUID())},
		ID:             uuid.New(),
	}
	if err := c.bind(ctx, call.Registry, request.Spec.BoundObjectRef, &s); err != nil {
		return nil, err
	}
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = c.Tokens.Audiences()
	}
	token, expires, err := c.Tokens.Issue(s, request.Spec.Audiences, time.Duration(seconds)*time.Second)
	if long := new(satoken.TooLongError); errors.As(err, &long) { // only the audiences can be long
		return nil, apierrors.NewInvalid(tokenRequests, account.GetName(), field.ErrorList{
			{Type: field.ErrorTypeTooLong, Field: "spec.audiences", BadValue: field.OmitValueType{}, Detail: long.Error()},
		})
	}
	if err != nil {
		return nil, err
	}
	call.Annotate("authentication.kubernetes.io/issued-credential-id", "JTI="+s.ID)
	request.Name, request.Namespace, request.UID = account.GetName(), account.GetNamespace(), account.GetUID()
	request.CreationTimestamp = metav1.NewTime(expires.Add(-time.Duration(seconds) * time.Second).UTC())
	request.ManagedFields = nil
	request.Spec.ExpirationSeconds = &seconds
	request.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires.UTC())}
	return request, nil
}

// checkAccount compares the metadata of a request with its service account.
func checkAccount(request *authenticationv1.TokenRequest, account metav1.Object) error {
	if request.Name != "" && request.Name != account.GetName() {
		return apierrors.NewInvalid(tokenRequests, account.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), request.Name, "must match the service account name if specified"),
		})
	}
	if request.UID != "" && request.UID != account.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Group: tokenRequests.Group, Resource: tokenRequests.Kind}, account.GetName(),
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, account.GetUID()))
	}
	return nil
}

func checkSeconds(seconds int64) error {
	path, text := field.NewPath("spec", "expirationSeconds"), ""
	switch {
	case seconds < minSeconds:
		text = "may not specify a duration less than 10 minutes"
	case seconds > maxSeconds:
		text = "may not specify a duration larger than 2^32 seconds"
	default:
		return nil
	}
	return apierrors.NewInvalid(tokenRequests, "", field.ErrorList{field.Invalid(path, seconds, text)})
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
		return apierrors.NewBadRequest("cannot bind token to object of type " + kind.String())
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
