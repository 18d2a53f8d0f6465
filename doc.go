// Package tidemark is a Kubernetes API server to embed in a Go program. It serves the
// API of Kubernetes v1.37 from one process. It needs no etcd, no kubelet and no cluster.
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
// A [Server] serves the built-in kinds and custom resources, with all verbs: get, list,
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
// A Server keeps its objects in memory unless [Server.Storage] is set. Every revision of the last
// hour stays readable: it can be listed, watched from and paged through. [History] sets
// the bounds. Three packages have storages, and only programs that import one link its dependencies:
//
//   - [github.com/tidemark-dev/tidemark/datadir] keeps objects and history in a directory, for one server.
//   - [github.com/tidemark-dev/tidemark/etcdstore] keeps objects in etcd, as kube-apiserver does. Several
//     servers can share them: each serves all requests, and one of them runs the controllers.
//   - [github.com/tidemark-dev/tidemark/follower] has a copy of the objects of another server, which makes
//     the writes. A follower can take the place of that server.
//
// # Worlds and forks
//
// A [World] is a state with its own objects, history, permissions and controllers. Each server has one,
// [Server.Root]. [World.Fork] makes another one, a fork, which begins with the newest state or with an older
// one. It shares the objects of that state, so it takes the same time however many there are. Neither world
// sees later writes to the other. A fork has a URL and clients of its own. So many tests can begin
// with one prepared state, and an upgrade can be tried on a copy of the data:
//
//	f, err := s.Root().Fork(ctx, tidemark.ForkOptions{})
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	clients, err := kubernetes.NewForConfig(f.RESTConfig())
//
// # Replicas and faults
//
// A [Replica] is another address of a world, whose reads are behind as those of a watch cache can be.
// A [Fault] makes requests fail as they can fail in a cluster: conflicts, latency, lost responses, 410
// Gone. Both do only what the Kubernetes API allows, so a client that breaks on them is wrong.
//
// # Time
//
// [Server.Clock] is a [Clock] that tests move, [Server.Seed] makes UIDs and names the same in each run,
// and a server with [Server.InProcess] works in a bubble of testing/synctest. [World.Settle] waits until
// a world has nothing left to do.
//
// # Many servers
//
// Any number of Servers can run in one process, each with its own objects, certificate authority,
// metrics and log. They share only values that depend on the program alone, such as the built-in kinds.
package tidemark
