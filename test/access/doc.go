// Package access compares decisions about access with a reference that follows the
// specification of RBAC literally, and with a kube-apiserver where there is one.
package access
