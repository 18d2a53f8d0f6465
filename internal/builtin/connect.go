package builtin

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// connection returns a subresource whose requests are passed on to a kubelet or a backend.
func connection[T any, P pointerTo[T]](name string, verbs []string, connect func(runtime.Object, url.Values) (string, error)) resource.Subresource {
	kind := schema.GroupVersionKind{Kind: reflect.TypeFor[T]().Name()}
	return resource.Subresource{Name: name, Verbs: verbs, Kind: kind, Connect: connect, Options: func() runtime.Object { return P(new(T)) }}
}

// connectContainer is for exec and attach, which need one container of a Pod on a node.
func connectContainer(o runtime.Object, options url.Values) (string, error) {
	p := o.(*corev1.Pod)
	if err := checkContainer(p, options.Get("container")); err != nil {
		return "", err
	}
	return connectPod(o, options)
}

// connectPod is for subresources that need a Pod on a node.
func connectPod(o runtime.Object, _ url.Values) (string, error) {
	p := o.(*corev1.Pod)
	if p.Spec.NodeName == "" {
		return "", apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
	}
	return p.Spec.NodeName, nil
}

// connectLog returns the node of a Pod, whose kubelet has the logs. It is empty for a Pod without a
// node, whose log is empty.
func connectLog(o runtime.Object, options url.Values) (string, error) {
	p := o.(*corev1.Pod)
	if err := checkLogOptions(p.Name, options); err != nil {
		return "", err
	}
	return p.Spec.NodeName, checkContainer(p, options.Get("container"))
}

// proxyPod returns the address of a Pod.
func proxyPod(o runtime.Object, _ url.Values) (string, error) {
	p := o.(*corev1.Pod)
	if p.Status.PodIP == "" {
		return "", apierrors.NewBadRequest("address not allowed")
	}
	return p.Status.PodIP, nil
}

// proxyNode returns the name of a Node, whose address this server does not resolve.
func proxyNode(o runtime.Object, _ url.Values) (string, error) { return o.(*corev1.Node).Name, nil }

// proxyService fails: the EndpointSlices of a Service have its addresses, which need more than the stored Service.
func proxyService(o runtime.Object, _ url.Values) (string, error) {
	return "", fmt.Errorf("a %T has no address", o)
}

// checkContainer checks that a Pod has the named container. Without a name, the Pod must have
// exactly one.
func checkContainer(p *corev1.Pod, name string) error {
	if name == "" && len(p.Spec.Containers) == 1 {
		return nil
	}
	var all []string
	for _, c := range p.Spec.InitContainers {
		all = append(all, c.Name)
	}
	for _, c := range p.Spec.Containers {
		all = append(all, c.Name)
	}
	for _, c := range p.Spec.EphemeralContainers {
		all = append(all, c.Name)
	}
	switch {
	case name == "" && len(all) > 0:
		return apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", p.Name, all))
	case name == "":
		return apierrors.NewBadRequest("a container name must be specified for pod " + p.Name)
	case !slices.Contains(all, name):
		return apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
	}
	return nil
}

// checkLogOptions checks the parameters of log.
func checkLogOptions(pod string, v url.Values) error {
	var errs field.ErrorList
	for _, n := range []struct {
		name  string
		least int64
		text  string
	}{
		{"tailLines", 0, "must be greater than or equal to 0"},
		{"limitBytes", 1, "must be greater than 0"},
		{"sinceSeconds", 1, "must be greater than 0"},
	} {
		if !v.Has(n.name) {
			continue
		}
		value, err := strconv.ParseInt(v.Get(n.name), 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		if value < n.least {
			errs = append(errs, field.Invalid(field.NewPath(n.name), value, n.text))
		}
	}
	if text := v.Get("sinceTime"); text != "" {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		if v.Has("sinceSeconds") {
			errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
		}
	}
	if v.Get("stream") != "" {
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified"))
	}
	if len(errs) == 0 {
		return nil
	}
	return resource.Invalid(schema.GroupKind{Kind: "PodLogOptions"}, pod, errs)
}
