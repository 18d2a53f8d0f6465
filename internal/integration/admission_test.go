package integration_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const somePod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// TestAdmissionPlugins checks EnableAdmissionPlugins and DisableAdmissionPlugins.
func TestAdmissionPlugins(t *testing.T) {
	with := func(enable, disable []string) *corev1.Pod {
		c := servertest.Start(t, &tidemark.Server{Admission: tidemark.Admission{Enable: enable, Disable: disable}}).RESTConfig()
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
	s := &tidemark.Server{Admission: tidemark.Admission{Disable: []string{"Unknown"}}}
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

// TestFullRange creates Services after one namespace has taken all node ports. Others get the error of kube-apiserver, and
// the log has one line a minute, which counts them. A quota of services.nodeports leaves ports to other namespaces.
func TestFullRange(t *testing.T) {
	var logged servertest.Buffer
	clock := &tidemark.Clock{Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} // it stands
	s := servertest.Start(t, &tidemark.Server{
		Services: tidemark.Services{NodePortRange: "30000-30003"}, Clock: clock, Controllers: []string{"-*"}, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	c := s.RESTConfig()
	const services = "/api/v1/namespaces/default/services"
	service := func(ports int) string {
		return `{"metadata":{"generateName":"s"},"spec":{"type":"NodePort","ports":[` + times(ports, `{"name":"p%[1]d","port":8%[1]d}`) + `]}}`
	}
	run(t, c, []step{
		{"POST /api/v1/namespaces", `{"metadata":{"name":"n"}}`, 201, nil},
		{"POST /api/v1/namespaces/n/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"services.nodeports":"2"}},"status":{"hard":{"services.nodeports":"2"},"used":{"services.nodeports":"0"}}}`, 201, nil},
		{"MERGE /api/v1/namespaces/n/resourcequotas/q/status", `{"status":{"hard":{"services.nodeports":"2"},"used":{"services.nodeports":"0"}}}`, 200, nil},
		{"POST " + strings.Replace(services, "default", "n", 1), service(3), 403, nil},
		{"POST " + strings.Replace(services, "default", "n", 1), service(2), 201, nil},
		{"POST " + services, service(2), 201, nil},
	})
	lines := func() int { return strings.Count(logged.String(), "no address or port is free") }
	for range 10 {
		wantRefused(t, c, services, service(1), 500, "Internal error occurred: failed to allocate a nodePort: range is full")
	}
	if text := logged.String(); lines() != 1 || strings.Contains(text, "request failed") {
		t.Errorf("%d lines: %s", lines(), text)
	}
	clock.Advance(time.Minute)
	wantRefused(t, c, services, service(1), 500, "Internal error occurred: failed to allocate a nodePort: range is full")
	if !strings.Contains(logged.String(), "requests=10 ") || lines() != 2 {
		t.Errorf("after a minute: %s", logged.String())
	}
}
