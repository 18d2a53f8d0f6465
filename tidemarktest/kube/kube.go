// Package kube connects client-go with tidemarktest. It works with client-go v0.32 and later, so with
// controller-runtime v0.20 and later.
package kube

import (
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/nethttp"
)

// Config returns a configuration for client-go as the user of an Env. The caller may change it.
func Config(env *tidemarktest.Env) *rest.Config {
	// The default of client-go, 5 requests per second, is meant for shared clusters.
	c := &rest.Config{Host: env.URL(), BearerToken: env.Token(), QPS: 1000, Burst: 2000}
	if c.Transport = nethttp.Transport(env); c.Transport == nil {
		c.TLSClientConfig = rest.TLSClientConfig{CAData: env.CAData(), ServerName: env.ServerName()}
	}
	return c
}
