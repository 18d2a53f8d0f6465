// Package dropin runs what was made for the kube-apiserver and etcd of envtest, unchanged, on the
// programs that tidemark envtest-assets writes: envtest itself, the steps of fabric8's kube-api-test, and
// with TIDEMARK_TEST_SUITES=1 also setup-envtest, kwokctl, a suite of e2e-framework, and the suites of
// controller-runtime, kro and Cluster API, which takes up to an hour with cold caches.
package dropin
