package builtin_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/coordination"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestLease(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: l}}", []testkinds.Rule{
		{"valid", "spec: {leaseDurationSeconds: 1, leaseTransitions: 0}", ""},
		{"a duration is positive", "spec: {leaseDurationSeconds: 0}", "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"},
		{"transitions are not negative", "spec: {leaseTransitions: -1}", "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"},
	}, func(l *coordinationv1.Lease) []string { return testkinds.Texts(coordination.ValidateLease(l)) })
	testkinds.Updates(t, "{metadata: {name: l}, spec: {holderIdentity: a, leaseDurationSeconds: 1, leaseTransitions: 2}}", []testkinds.Update{
		{"update: the holder changes", "", "spec: {holderIdentity: b, leaseDurationSeconds: 2, leaseTransitions: 1}", ""},
		{"update: the new lease is checked", "", "spec.leaseDurationSeconds: -1", "spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0"},
	}, func(l, old *coordinationv1.Lease) []string {
		return testkinds.Texts(coordination.ValidateLeaseUpdate(l, old))
	})
}
