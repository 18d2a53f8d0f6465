// Package aggregated tests API aggregation with k8s.io/sample-apiserver as a process behind a server.
package aggregated
