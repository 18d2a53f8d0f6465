// Package world assembles a server from its parts, and runs it. Package tidemark is its documented face: it turns a
// tidemark.Server into a [Config], and nothing here knows more than that.
//
// The files in layers, each above those that it uses:
//
//	start.go                    start and stop, in order
//	root.go                     the root world: first objects, controllers, the parts that exist once
//	api_*.go, control*.go       /forks, /backup, /status; the control API
//	forking.go, route.go        forks made, found, closed; a request goes to a world, or opens a fork
//	kept.go, forks.go           kept forks; all forks by their names
//	settle.go, replica.go, ...  what clients can do with a world
//	serve.go, fork.go           a request in a world; a world that begins with a state of another one
//	world.go                    World: the parts on one store
//	process.go and others       the parts that all worlds share: keys, authentication, audit, encryption, listeners
//	config.go                   Config, and leaves that know nothing of it
package world
