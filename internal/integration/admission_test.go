package integration_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const somePod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// TestAdmissionPlugins checks EnableAdmissionPlugins and DisableAdmissionPlugins.
func TestAdmissionPlugins(t *testing.T) {
	with := func(enable, disable []string) *corev1.Pod {
		c := servertest.Start(t, &tidemark.Server{EnableAdmissionPlugins: enable, DisableAdmissionPlugins: disable}).RESTConfig()
		create[corev1.Namespace](t, c, "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
		create[corev1.LimitRange](t, c, "/api/v1/namespaces/n/limitranges", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{"cpu":"1"}}]}}`)
		return create[corev1.Pod](t, c, "/api/v1/namespaces/n/pods", somePod)
	}
	p := with(nil, nil)
	if p.Spec.ServiceAccountName != "" || len(p.Spec.Containers[0].Resources.Limits) != 1 || p.Spec.Priority == nil {
		t.Errorf("by default a Pod is %+v", p.Spec)
	}
	p = with([]string{"ServiceAccount"}, []string{"LimitRanger", "Priority", "DefaultTolerationSeconds"})
	if p.Spec.ServiceAccountName != "default" || len(p.Spec.Volumes) != 1 || len(p.Spec.Containers[0].Resources.Limits) != 0 || p.Spec.Priority != nil || p.Spec.Tolerations != nil {
		t.Errorf("with others a Pod is %+v", p.Spec)
	}
	s := &tidemark.Server{DisableAdmissionPlugins: []string{"Unknown"}}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `plugin "Unknown" is unknown`) {
		t.Errorf("got %v, want that there is no such plugin", err)
	}
}

// TestQuotaAlone checks that a server without other controllers enforces quotas.
func TestQuotaAlone(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c := s.RESTConfig()
	create[corev1.ResourceQuota](t, c, "/api/v1/namespaces/default/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"pods":"0"}}}`)
	settle(t, c)
	wantRefused(t, c, "/api/v1/namespaces/default/pods", somePod, 403, `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`)
}

// TestOwnAddress checks that the Service of the server itself has an IPAddress.
func TestOwnAddress(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	a := object[networkingv1.IPAddress](t, c, "/apis/networking.k8s.io/v1/ipaddresses/10.96.0.1")
	if p := a.Spec.ParentRef; p == nil || p.Namespace != "default" || p.Name != "kubernetes" {
		t.Errorf("it is %+v", a.Spec)
	}
}
