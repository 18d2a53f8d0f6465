// Package tidemark is a Kubernetes API server to embed in a Go program. It serves the
// API of Kubernetes v1.36 from one process. It needs no etcd, no kubelet and no cluster.
//
//	var s tidemark.Server // in memory, on a free port of the loopback interface
//	if err := s.Start(ctx); err != nil {
//		return err
//	}
//	defer s.Close()
//	clients, err := kubernetes.NewForConfig(s.RESTConfig())
//
// # API
//
// A Server serves the built-in kinds and custom resources, with all verbs: get, list,
// watch, create, update, patch, server-side apply and delete. Defaults, validation,
// resource versions and error messages are those of kube-apiserver. It also runs the
// controllers that clients rely on, such as garbage collection and the deletion of
// namespaces. It has no scheduler: Pods are objects that nothing runs.
//
// RBAC, admission webhooks, admission policies, and priority and fairness are in effect,
// each change with the next request. docs/compatibility.md in the repository lists what
// works and what does not.
//
// # Storage
//
// A Server keeps its objects in memory unless Storage is set. Package
// [github.com/tidemark-dev/tidemark/datadir] keeps them in a directory; only programs
// that import it link the storage engine. Every revision of the last hour stays readable:
// it can be listed, watched from and paged through, also after a restart. [History] sets
// the bounds.
//
// # Many servers
//
// Servers share nothing. Any number of them can run in one process, each with its own
// certificate authority, metrics and log.
package tidemark
