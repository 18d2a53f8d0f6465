// Package dropin runs programs and suites that were written for the kube-apiserver and etcd of
// envtest, unchanged, on the programs that tidemark envtest-assets writes: envtest itself, the
// steps of fabric8's kube-api-test, setup-envtest, kwokctl, a suite of e2e-framework, and the
// suites of controller-runtime, kro and Cluster API. All of it runs in the full tier, and takes up
// to an hour with cold caches.
package dropin
