// Package conformance checks API servers against the documents of the Kubernetes API:
// API Concepts, KEP-2523, KEP-5504 and KEP-5866. It uses only the API, so it can check any server:
// kube-apiserver, a vendor's server, or an aggregated one.
//
// A check is a row of data (Check) with a function that sends requests and returns at
// the first violation. A check passes or fails. It is absent if the server does not have
// the feature; a MUST that is absent counts as failed. It is skipped if something else is
// missing, such as a permission. A failed check shows its last requests as curl commands,
// and the responses.
//
// All checks run in one namespace, some of them concurrently. Each check uses only
// objects with its own name prefix, and does not assume that it runs alone.
//
// # Reading the source
//
// check.go is the input, report.go the output, and run.go connects them. Checks are
// written with probe.go, which uses client.go (requests and their record) and stream.go
// (watches). Each area of checks has a file: start with list.go, whose table is the
// document's; consistency.go is the hardest. sweep.go and bodies.go visit all types that
// discovery shows.
package conformance
