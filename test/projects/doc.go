// Package projects sends the manifests of well-known projects, and mutants of them, to Tidemark and
// to kube-apiserver, and reports the differences.
package projects
