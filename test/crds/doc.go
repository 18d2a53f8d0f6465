// Package crds has custom resources of others, and random ones, stored and refused by
// Tidemark as kube-apiserver does.
package crds
