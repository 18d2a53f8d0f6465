// Package policies compares the decisions of random admission policies with those of a
// kube-apiserver, words included: policies that are refused when they are stored, validation,
// mutation. Without a kube-apiserver, it compares them with recorded responses.
package policies
