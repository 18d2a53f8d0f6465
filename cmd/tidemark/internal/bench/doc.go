// Package bench measures a Kubernetes API server from outside: any server that a
// kubeconfig leads to, or two of them side by side, round by round.
//
// It is a generator that tries to be honest and cheap. Every answer is checked
// (status, number of items, resource versions that are there and grow, the events
// of each watcher and their order), but nothing is decoded: bodies are read into
// buffers that are used again, and searched for a few markers. A scenario says
// whether its loop is open or closed. In a closed loop a client waits for its
// answer before it asks again, so a slow server is asked less. In an open loop
// requests have intended times, and a latency is counted from the intended time,
// however late the request could be sent. What the generator itself costs stands in
// the result.
//
// # Reading the source
//
// options.go says what can be chosen, report.go what comes out. run.go goes through
// scenarios (scenarios.go lists them), rounds and servers. A bed (bed.go) is one
// server with the namespaces and objects made in it; a crew (crew.go) is a number
// of clients that repeat one operation; fanout.go is a set of watchers. The rest are
// the scenarios themselves.
package bench
