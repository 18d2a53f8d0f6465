// Package conformance holds an API server to the promises of the Kubernetes API's
// documents: API Concepts, KEP-2523 and KEP-5504. It knows a server through its API
// alone, so that any server can be asked: kube-apiserver, one of a vendor, an
// aggregated one.
//
// A check is a row of data (Check) with a function that makes requests, and ends
// with the first thing that is not as promised. It passes, it fails, it is absent
// when the server has not got the feature (a MUST that is absent counts as failed),
// or it is skipped when something around it is missing, as the right to do it.
// What fails shows its last requests as command lines for curl, and their answers.
//
// All checks run in one namespace that is made for them, some at once: each looks
// only at objects whose names begin with its own prefix, and never counts on being
// alone.
//
// # Reading the source
//
// check.go and report.go say what goes in and comes out, run.go puts it together.
// probe.go is what a check is written with; below it are client.go (requests and
// their record) and stream.go (watches). Then come the checks, a file for each area:
// list.go, whose table is the document's, is a good one to begin with, and
// consistency.go the deepest. sweep.go and bodies.go go through all types that
// discovery shows.
package conformance
