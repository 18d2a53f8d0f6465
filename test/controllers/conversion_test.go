package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// harbour is a server with ferries, and a webhook server that converts them.
type harbour struct {
	*bed
	hook envtest.WebhookInstallOptions
	stop context.CancelFunc
}

// inHarbour runs a test with ferries on each server.
func inHarbour(t *testing.T, test func(h *harbour)) {
	servers.Each(t, func(t *testing.T, s servers.Server) {
		known := ferryScheme(t)
		c, err := client.NewWithWatch(s.Config, client.Options{Scheme: known})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		t.Cleanup(cancel)
		h := &harbour{bed: &bed{t: t, ctx: ctx, c: c, namespace: s.Namespace, server: s}}
		h.must(h.hook.PrepWithoutInstalling())
		h.certify("converter." + s.Namespace + ".svc") // as which a service is known, which envtest would look up
		t.Cleanup(func() {
			if err := h.hook.Cleanup(); err != nil {
				t.Error(err)
			}
		})
		h.serve(webhook.NewServer(webhook.Options{Host: h.hook.LocalServingHost, Port: h.hook.LocalServingPort, CertDir: h.hook.LocalServingCertDir}))
		installed, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{
			MaxTime: time.Minute, CRDs: []*apiextensionsv1.CustomResourceDefinition{ferryDefinition(h.atURL())},
		})
		h.must(err)
		t.Cleanup(func() {
			if err := envtest.UninstallCRDs(s.Config, envtest.CRDInstallOptions{CRDs: installed}); err != nil {
				t.Error(err)
			}
		})
		test(h)
	})
}

// certify gives the webhook server a certificate for its address and a name.
func (h *harbour) certify(name string) {
	h.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	h.must(err)
	made := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{name}, IPAddresses: []net.IP{net.ParseIP(h.hook.LocalServingHost)},
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, key.Public(), key)
	h.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	h.must(err)
	h.hook.LocalServingCAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	h.must(os.WriteFile(filepath.Join(h.hook.LocalServingCertDir, "tls.crt"), h.hook.LocalServingCAData, 0o600))
	h.must(os.WriteFile(filepath.Join(h.hook.LocalServingCertDir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// serve has the webhook server convert until stop is called.
func (h *harbour) serve(s webhook.Server) {
	h.t.Helper()
	s.Register("/convert", conversion.NewWebhookHandler(h.c.Scheme(), conversion.NewRegistry()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	}
	h.t.Cleanup(h.stop)
	await.True(h.t, "the webhook server responds", func() bool { return s.StartedChecker()(nil) == nil })
}

func (h *harbour) atURL() *apiextensionsv1.WebhookClientConfig {
	at := "https://" + net.JoinHostPort(h.hook.LocalServingHost, strconv.Itoa(h.hook.LocalServingPort)) + "/convert"
	return &apiextensionsv1.WebhookClientConfig{URL: &at, CABundle: h.hook.LocalServingCAData}
}

// redefine changes the definition.
func (h *harbour) redefine(change func(d *apiextensionsv1.CustomResourceDefinition)) {
	h.t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ferries." + ferryGroup}}
	h.again(d)
	change(d)
	h.must(h.c.Update(h.ctx, d))
}

func (h *harbour) older(name, route string, cars int64) *ferry {
	f := &ferry{ObjectMeta: h.meta(name)}
	f.Spec.Route, f.Spec.Cars = route, cars
	return f
}

func (h *harbour) newer(name, from, to string) *ferryHub {
	f := &ferryHub{ObjectMeta: h.meta(name)}
	f.Spec.From, f.Spec.To, f.Spec.Cars = from, to, 3
	return f
}

// is compares an object in both versions.
func (h *harbour) is(name, from, to string, cars int64) {
	h.t.Helper()
	first, second := h.older(name, "", 0), h.newer(name, "", "")
	h.again(first)
	h.again(second)
	if s := first.Spec; s.Route != from+"-"+to || s.Cars != cars {
		h.t.Errorf("%s is %+v in v1", name, s)
	}
	if s := second.Spec; s.From != from || s.To != to || s.Cars != cars {
		h.t.Errorf("%s is %+v in v2", name, s)
	}
	if first.UID != second.UID || first.ResourceVersion != second.ResourceVersion || first.Generation != second.Generation {
		h.t.Errorf("%s is %+v in v1, %+v in v2", name, first.ObjectMeta, second.ObjectMeta)
	}
}

// TestConversion: objects are written, read, listed and watched in either version, and
// a webhook server of controller-runtime converts them, whichever version is stored.
func TestConversion(t *testing.T) {
	tier.Full(t)
	inHarbour(t, func(h *harbour) {
		w, err := h.c.Watch(h.ctx, &ferryList{}, client.InNamespace(h.namespace))
		h.must(err)
		defer w.Stop()
		h.must(h.c.Create(h.ctx, h.older("a", "kiel-oslo", 0)))
		h.must(h.c.Create(h.ctx, h.newer("b", "turku", "visby")))
		h.is("a", "kiel", "oslo", 10)
		h.is("b", "turku", "visby", 3)
		changed := h.newer("a", "", "")
		h.again(changed)
		changed.Spec.Cars = 4
		h.must(h.c.Update(h.ctx, changed))
		h.must(h.c.Patch(h.ctx, h.newer("b", "", ""), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"to":"riga"}}`))))
		h.must(h.c.Patch(h.ctx, h.older("b", "", 0), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cars":5},"metadata":{"labels":{"new":"yes"}}}`))))
		h.is("a", "kiel", "oslo", 4)
		h.is("b", "turku", "riga", 5)
		h.watched(w.ResultChan(), "ADDED a kiel-oslo 10", "ADDED b turku-visby 3", "MODIFIED a kiel-oslo 4", "MODIFIED b turku-riga 3", "MODIFIED b turku-riga 5")
		h.listed(2)

		h.redefine(func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
		})
		h.is("a", "kiel", "oslo", 4)
		h.listed(2)
		again := h.older("a", "", 0)
		h.again(again)
		again.Spec.Route = "kiel-moss"
		h.must(h.c.Update(h.ctx, again))
		h.is("a", "kiel", "moss", 4)
		h.must(h.c.Create(h.ctx, h.older("c", "bari-bar", 1)))
		h.is("c", "bari", "bar", 1)
		h.listed(3)
		d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ferries." + ferryGroup}}
		h.again(d)
		if got := strings.Join(d.Status.StoredVersions, " "); got != "v1 v2" {
			t.Errorf("stored versions: %s", got)
		}
		h.migrate(d)
	})
}

// migrate writes all objects again, after which the older version can go.
func (h *harbour) migrate(d *apiextensionsv1.CustomResourceDefinition) {
	h.t.Helper()
	all := &ferryHubList{}
	h.must(h.c.List(h.ctx, all, client.InNamespace(h.namespace)))
	for i := range all.Items {
		h.must(h.c.Update(h.ctx, &all.Items[i]))
	}
	gone := d.DeepCopy()
	gone.Spec.Versions = gone.Spec.Versions[1:]
	if err := h.c.Update(h.ctx, gone); !apierrors.IsInvalid(err) {
		h.t.Errorf("a version that may be stored goes: %v", err)
	}
	d.Status.StoredVersions = []string{"v2"}
	h.must(h.c.Status().Update(h.ctx, d))
	h.redefine(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions = d.Spec.Versions[1:] })
	h.stop()
	after := h.newer("a", "", "")
	h.again(after)
	if s := after.Spec; s.From != "kiel" || s.To != "moss" {
		h.t.Errorf("a is %+v when v1 is gone", s)
	}
	await.True(h.t, "v1 is served no more", func() bool { return h.c.Get(h.ctx, client.ObjectKeyFromObject(after), &ferry{}) != nil })
}

// listed compares lists in both versions.
func (h *harbour) listed(n int) {
	h.t.Helper()
	first, second := &ferryList{}, &ferryHubList{}
	h.must(h.c.List(h.ctx, first, client.InNamespace(h.namespace)))
	h.must(h.c.List(h.ctx, second, client.InNamespace(h.namespace)))
	if len(first.Items) != n || len(second.Items) != n {
		h.t.Fatalf("%d and %d objects, want %d", len(first.Items), len(second.Items), n)
	}
	for i := range first.Items {
		if a, b := first.Items[i], second.Items[i]; a.Name != b.Name || a.Spec.Route != b.Spec.From+"-"+b.Spec.To || a.Spec.Cars != b.Spec.Cars || b.APIVersion != ferryGroup+"/v2" {
			h.t.Errorf("v1 has %+v, v2 %+v", a.Spec, b.Spec)
		}
	}
}

// watched compares the events of a watch.
func (h *harbour) watched(events <-chan watch.Event, want ...string) {
	h.t.Helper()
	for _, each := range want {
		select {
		case e := <-events:
			f, ok := e.Object.(*ferry)
			if !ok {
				h.t.Fatalf("an event is %v %v", e.Type, e.Object)
			}
			if got := fmt.Sprintf("%s %s %s %d", e.Type, f.Name, f.Spec.Route, f.Spec.Cars); got != each {
				h.t.Errorf("an event is %s, want %s", got, each)
			}
		case <-h.ctx.Done():
			h.t.Fatalf("no event %s", each)
		}
	}
}

// failure returns the text of an error without the parts that differ from run to run.
func failure(err error) string {
	if err == nil {
		return ""
	}
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(err.Error(), "127.0.0.1:port")
}

// TestConversionFails: if the webhook refuses a conversion, or another server responds in its
// place, the error names the cause. Requests without conversion still work.
func TestConversionFails(t *testing.T) {
	tier.Full(t)
	const failed = "conversion webhook for " + ferryGroup + "/v1, Kind=Ferry failed: "
	inHarbour(t, func(h *harbour) {
		h.must(h.c.Create(h.ctx, h.older("a", "kiel-oslo", 1)))
		h.must(h.c.Create(h.ctx, h.older("lost", "kiel", 1))) // it needs no conversion
		get := func(name, want string) {
			h.t.Helper()
			err := h.c.Get(h.ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, &ferryHub{})
			if got := failure(err); got != want {
				h.t.Errorf("%s: %s\nwant %s", name, got, want)
			}
		}
		get("a", "")
		get("lost", failed+"the route kiel leads nowhere")
		if got := failure(h.c.List(h.ctx, &ferryHubList{}, client.InNamespace(h.namespace))); got != failed+"the route kiel leads nowhere" {
			h.t.Errorf("the list: %s", got)
		}
		h.must(h.c.Delete(h.ctx, h.older("lost", "", 0)))

		other := envtest.WebhookInstallOptions{}
		h.must(other.PrepWithoutInstalling())
		h.t.Cleanup(func() { h.must(other.Cleanup()) })
		h.redefine(func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Conversion.Webhook.ClientConfig.CABundle = other.LocalServingCAData
		})
		h.change("a")
		h.fails("a", failed+`Post "https://127.0.0.1:port/convert?timeout=30s": tls: failed to verify certificate: x509: certificate signed by unknown authority`)
		if err := h.c.Get(h.ctx, client.ObjectKey{Namespace: h.namespace, Name: "a"}, &ferry{}); err != nil {
			h.t.Errorf("v1: %v", err)
		}

		h.redefine(func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{CABundle: h.hook.LocalServingCAData, Service: &apiextensionsv1.ServiceReference{
				Namespace: h.namespace, Name: "converter", Path: new("/convert"), Port: new(int32(h.hook.LocalServingPort)),
			}}
		})
		h.change("a")
		name := "converter." + h.namespace + ".svc:"
		h.fails("a", failed+`Post "https://`+name+`port/convert?timeout=30s": service "converter" not found`)
		h.must(h.c.Create(h.ctx, &corev1.Service{ObjectMeta: h.meta("converter"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}))
		h.fails("a", failed+`Post "https://`+name+`port/convert?timeout=30s": no service port port found for service "converter"`)
		h.must(h.c.Delete(h.ctx, &corev1.Service{ObjectMeta: h.meta("converter")}))
		service := &corev1.Service{ObjectMeta: h.meta("converter"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: int32(h.hook.LocalServingPort)}}}}
		h.must(h.c.Create(h.ctx, service))
		await.True(h.t, "the service is used", func() bool { h.change("a"); return h.reads("a") == "" })
		h.stop()
		h.change("a")
		h.fails("a", failed+`Post "https://`+name+`port/convert?timeout=30s": dial tcp 127.0.0.1:port: connect: connection refused`)
	})
}

// change writes a version of an object that has not been converted yet.
func (h *harbour) change(name string) {
	h.t.Helper()
	f := h.older(name, "", 0)
	h.again(f)
	f.Spec.Cars++
	h.must(h.c.Update(h.ctx, f))
}

// reads returns the error of reading an object in the other version, or an empty string.
func (h *harbour) reads(name string) string {
	text := failure(h.c.Get(h.ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, &ferryHub{}))
	return strings.ReplaceAll(text, strconv.Itoa(h.hook.LocalServingPort), "port")
}

// fails waits until reading fails as it should.
func (h *harbour) fails(name, want string) {
	h.t.Helper()
	got := h.reads(name)
	if h.server.Peer { // it learns of definitions and services a little later
		await.Nil(h.t, want, func() error {
			if got = h.reads(name); got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	if got != want {
		h.t.Errorf("%s\nwant %s", got, want)
	}
}
