package tidemarktest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/nethttp"
)

// The shop operator makes the objects of shops: for each ConfigMap with the label role=shop six ConfigMaps
// and a Secret, which it owns. Then it marks the shop as ready. It lists and watches shops, reads before
// it writes, and tries again after an error.

const (
	shops       = 25
	shopSecrets = "/api/v1/namespaces/default/secrets"
	shopRetry   = 20 * time.Millisecond
)

type shopMeta struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	Owners          []map[string]any  `json:"ownerReferences,omitempty"`
}

type shopObject struct {
	Metadata shopMeta          `json:"metadata"`
	Data     map[string]string `json:"data,omitempty"`
}

// shopOperator is one process of the operator.
type shopOperator struct {
	env   *tidemarktest.Env
	queue chan string
}

// runShopOperator runs the operator until the context ends.
func runShopOperator(ctx context.Context, env *tidemarktest.Env) {
	runShops(ctx, env, (*shopOperator).reconcile)
}

// runShops runs an operator of shops until the context ends. After an error it reconciles the shop again.
func runShops(ctx context.Context, env *tidemarktest.Env, reconcile func(o *shopOperator, ctx context.Context, name string) error) {
	o := &shopOperator{env, make(chan string, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if o.watch(ctx) != nil {
				pause(ctx)
			}
		}
	}()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case name := <-o.queue:
			if err := reconcile(o, ctx, name); err != nil {
				pause(ctx)
				o.add(ctx, name)
			}
		}
	}
	<-done
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(shopRetry):
	}
}

func (o *shopOperator) add(ctx context.Context, name string) {
	select {
	case o.queue <- name:
	case <-ctx.Done():
	}
}

// watch lists the shops, and then watches them until the watch ends.
func (o *shopOperator) watch(ctx context.Context) error {
	const selector = configMaps + "?labelSelector=role%3Dshop"
	var list struct {
		Metadata shopMeta
		Items    []shopObject
	}
	if err := o.call(ctx, "GET", selector, nil, &list); err != nil {
		return err
	}
	for _, shop := range list.Items {
		o.add(ctx, shop.Metadata.Name)
	}
	response, err := o.open(ctx, "GET", selector+"&watch=true&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		return err
	}
	defer response.Close()
	for d := json.NewDecoder(response); ; {
		var event struct {
			Type   string
			Object shopObject
		}
		if err := d.Decode(&event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return fmt.Errorf("the watch has ended")
		}
		if event.Object.Metadata.Annotations["ready"] == "" {
			o.add(ctx, event.Object.Metadata.Name)
		}
	}
}

// reconcile makes the missing objects of a shop.
func (o *shopOperator) reconcile(ctx context.Context, name string) error {
	var shop shopObject
	if err := o.call(ctx, "GET", configMaps+"/"+name, nil, &shop); err != nil {
		return err
	}
	for i := range 6 {
		if err := o.ensure(ctx, configMaps, o.child(&shop, fmt.Sprintf("shelf-%d", i))); err != nil {
			return err
		}
	}
	if err := o.ensure(ctx, shopSecrets, o.child(&shop, "key")); err != nil {
		return err
	}
	if shop.Metadata.Annotations["ready"] == "true" {
		return nil
	}
	shop.Metadata.Annotations = map[string]string{"ready": "true"}
	return o.call(ctx, "PUT", configMaps+"/"+name, &shop, nil)
}

// child is an object that belongs to a shop.
func (o *shopOperator) child(shop *shopObject, part string) *shopObject {
	owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": shop.Metadata.Name, "uid": shop.Metadata.UID}
	return &shopObject{Metadata: shopMeta{
		Name: shop.Metadata.Name + "-" + part, Labels: map[string]string{"role": "part", "shop": shop.Metadata.Name}, Owners: []map[string]any{owner},
	}}
}

// ensure creates an object that does not exist.
func (o *shopOperator) ensure(ctx context.Context, collection string, want *shopObject) error {
	err := o.call(ctx, "GET", collection+"/"+want.Metadata.Name, nil, nil)
	if code, ok := err.(httpError); ok && code == http.StatusNotFound {
		return o.call(ctx, "POST", collection, want, nil)
	}
	return err
}

// httpError is the code of a response that is no success.
type httpError int

func (e httpError) Error() string { return http.StatusText(int(e)) }

func (o *shopOperator) open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, o.env.URL()+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "shop-operator")
	response, err := nethttp.Client(o.env).Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return nil, httpError(response.StatusCode)
	}
	return response.Body, nil
}

func (o *shopOperator) call(ctx context.Context, method, path string, body, out any) error {
	response, err := o.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, response)
		return err
	}
	return json.NewDecoder(response).Decode(out)
}

// shopsIn returns a world with shops.
func shopsIn(t tidemarktest.TB, n int) *tidemarktest.Env {
	env := tidemarktest.Start(t)
	for i := range n {
		env.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: shop-%02d, labels: {role: shop}}}", i))
	}
	return env
}

// BenchmarkEveryPrefix is the search over 200 writes of an operator.
func BenchmarkEveryPrefix(b *testing.B) {
	env := shopsIn(b, shops)
	for b.Loop() {
		tidemarktest.EveryPrefix(b, env, runShopOperator, tidemarktest.SameEnd())
	}
}
