package webhook

import (
	"context"
	"encoding/json"
	"strconv"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/jsontext"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// An AdmissionReview is written in two parts. The head has the UID of the call. The payload is the rest:
// all webhooks that see the request in the same form share it. It contains the objects, which are JSON
// already. Its members are in the order of the published type.

// reviewHead returns the head of a review.
func reviewHead(version, uid string) []byte {
	b := make([]byte, 0, 160)
	b = append(b, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/`...)
	b = append(b, version...)
	b = append(b, `","request":{"uid":"`...)
	b = append(b, uid...)
	return append(b, '"')
}

// payload returns the payload of reviews for a form of the request. It is computed once for each form.
func (d *dispatcher) payload(ctx context.Context, f registry.Form) ([]byte, error) {
	if t := d.payloads[f]; t != nil {
		return t, nil
	}
	v, err := d.a.Lean(ctx, f)
	if err != nil {
		return nil, internalError(err)
	}
	object, old, err := v.JSON()
	if err != nil {
		return nil, internalError(err)
	}
	options, err := optionsJSON(d.a.Options())
	if err != nil {
		return nil, internalError(err)
	}
	t, err := encodePayload(d.a, f, object, old, options)
	if err != nil {
		return nil, internalError(err)
	}
	if d.payloads == nil {
		d.payloads = map[registry.Form][]byte{}
	}
	d.payloads[f] = t
	return t, nil
}

// serverInfo is the user of writes of the server itself.
var serverInfo = authenticationv1.UserInfo{Username: "system:apiserver", Groups: []string{"system:masters"}}

// userInfo returns the user of a request as a review has it.
func userInfo(u *authn.User) authenticationv1.UserInfo {
	if u == nil {
		return serverInfo
	}
	return u.Info()
}

// encodePayload returns the payload of a review. The objects and the options are JSON; nil means that
// there are none.
func encodePayload(a *registry.Attributes, f registry.Form, object, old, options []byte) ([]byte, error) {
	user, err := json.Marshal(userInfo(a.Client()))
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 1024+len(user)+len(options)+len(object)+len(old))
	b = appendKind(append(b, `,"kind":`...), f.Kind)
	b = appendResource(append(b, `,"resource":`...), f.Resource)
	b = appendMember(b, "subResource", a.Subresource)
	b = appendKind(append(b, `,"requestKind":`...), a.RequestedKind())
	b = appendResource(append(b, `,"requestResource":`...), a.RequestedResource())
	b = appendMember(b, "requestSubResource", a.Subresource)
	b = appendMember(b, "name", a.ShownName())
	b = appendMember(b, "namespace", namespaceOf(a))
	b = append(b, `,"operation":`...)
	b = jsontext.AppendString(b, string(a.Operation))
	b = append(append(b, `,"userInfo":`...), user...)
	b = appendRaw(b, `,"object":`, object)
	b = appendRaw(b, `,"oldObject":`, old)
	b = strconv.AppendBool(append(b, `,"dryRun":`...), a.DryRun)
	b = appendRaw(b, `,"options":`, options)
	return append(b, "}}"...), nil
}

// namespaceOf returns the namespace of a request. That of a Namespace is the Namespace itself, unless
// the server generates its name.
func namespaceOf(a *registry.Attributes) string {
	if a.Type.Collection == "namespaces" && !a.NameGenerated {
		return a.ShownName()
	}
	return a.Namespace
}

func optionsJSON(o runtime.Object) ([]byte, error) {
	if o == nil {
		return nil, nil
	}
	return json.Marshal(o)
}

func appendKind(b []byte, k schema.GroupVersionKind) []byte {
	b = jsontext.AppendString(append(b, `{"group":`...), k.Group)
	b = jsontext.AppendString(append(b, `,"version":`...), k.Version)
	b = jsontext.AppendString(append(b, `,"kind":`...), k.Kind)
	return append(b, '}')
}

func appendResource(b []byte, r schema.GroupVersionResource) []byte {
	b = jsontext.AppendString(append(b, `{"group":`...), r.Group)
	b = jsontext.AppendString(append(b, `,"version":`...), r.Version)
	b = jsontext.AppendString(append(b, `,"resource":`...), r.Resource)
	return append(b, '}')
}

// appendMember appends a member unless its value is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return jsontext.AppendString(b, value)
}

// appendRaw appends a member whose value is JSON; nil: null.
func appendRaw(b []byte, member string, value []byte) []byte {
	b = append(b, member...)
	if value == nil {
		return append(b, "null"...)
	}
	return append(b, value...)
}
