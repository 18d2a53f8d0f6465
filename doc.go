// Package tidemark is a Kubernetes API server to embed: list, watch and resource
// versions as kube-apiserver has them, in one process, without etcd.
//
//	var s tidemark.Server // in memory, on a free port of the loopback interface
//	if err := s.Start(ctx); err != nil {
//		return err
//	}
//	defer s.Close()
//	clients, err := kubernetes.NewForConfig(s.RESTConfig())
//
// A Server keeps its objects in memory unless Storage says where else:
// package github.com/tidemark-dev/tidemark/datadir keeps them in a directory,
// and is the only one that links the storage engine.
//
// Servers share nothing: any number of them run in one process, each with its own
// certificate authority, its own metrics and its own log.
package tidemark
