// Package bench measures Kubernetes API servers through their API: one server, or two
// side by side in alternating rounds.
//
// The load generator is built to be correct and cheap. It checks every response (status,
// number of items, growing resource versions, the events of each watcher and their
// order) without decoding it: it reads bodies into reused buffers and searches them for a
// few markers. A scenario has an open or a closed loop. In a closed loop a client waits
// for a response before it sends the next request, so a slow server gets fewer requests.
// In an open loop each request has an intended start time, and its latency counts from
// that time even if the request was sent late. The results include the generator's own
// CPU.
//
// # Reading the source
//
// options.go is the input and report.go the output. run.go loops over scenarios (listed
// in scenarios.go), rounds and servers. A bed (bed.go) is a server with the namespaces
// and objects created on it. A crew (crew.go) is a number of clients that repeat one
// operation. fanout.go is a set of watchers. The other files are the scenarios.
package bench
