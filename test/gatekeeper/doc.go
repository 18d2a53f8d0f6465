// Package gatekeeper runs OPA Gatekeeper, with its controllers and webhooks, against a server. Its test
// is skipped unless TIDEMARK_TEST_GATEKEEPER names a version. It builds that version, and reads its
// manifests and demos from the module cache:
//
//	TIDEMARK_TEST_GATEKEEPER=v3.23.1 go test -timeout 20m ./test/gatekeeper
//
// The first build takes minutes. With TIDEMARK_TEST_PEER_KUBECONFIG, the test also runs against a
// kube-apiserver. That must be a new one without other users: the webhooks match all namespaces, and
// the definitions stay.
package gatekeeper
