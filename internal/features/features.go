// Package features has the differences between the minor versions of Kubernetes: the feature gates of kube-apiserver with
// their stages and defaults, and the first and last versions of kinds and fields. A Profile is one version with its gates
// resolved.
//
// Package builtin applies a Profile: For makes the catalog of its kinds, and its package gated clears the fields of
// disabled features.
//
// The tables are generated from the sources of Kubernetes:
//
//	go generate ./internal/features
package features

//go:generate go run ../../tools/gen/features

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The gates that other packages name: they change how requests are handled, or give a field a default. Others decide alone
// which kinds and fields there are.
const (
	// CBOR affects serving alone: objects are always stored as JSON.
	CBOR = "CBORServingAndStorage"
	// UnsafeDeletion lets clients delete objects that cannot be read. If it is set to true, and not only on by default, a
	// server also starts on a data directory if it cannot decrypt some values, whatever the reason.
	UnsafeDeletion = "AllowUnsafeMalformedObjectDeletion"
	// ExcludedReviews hides reviews of tokens and access from admission webhooks.
	ExcludedReviews = "ExcludeAdmissionWebhookVirtualResources"
	// ShardedLists lets clients limit lists and watches to a shard of the objects.
	ShardedLists = "ShardedListAndWatch"
	// UnmanagedResponses lets clients leave the managed fields out of responses. It is a gate of Kubernetes 1.38.
	UnmanagedResponses = "ManagedFieldsOptOut"
	// StaticManifests reads webhooks and policies from files.
	StaticManifests = "ManifestBasedAdmissionControlConfig"
	// StreamCompression compresses watches that begin with the present objects.
	StreamCompression = "WatchListCompression"
	// AutoscalerGeneration counts changes of HorizontalPodAutoscalers in their generation.
	AutoscalerGeneration = "HPAGeneration"
	// ScaleToZero lets the smallest number of replicas of a HorizontalPodAutoscaler be zero.
	ScaleToZero = "HPAScaleToZero"
	// MaxUnavailable gives the rolling update of a StatefulSet the field maxUnavailable, with a default.
	MaxUnavailable = "MaxUnavailableStatefulSet"
	// RelaxedServiceNames lets the name of a Service begin with a digit.
	RelaxedServiceNames = "RelaxedServiceNameValidation"
	// PodResources sets the defaults of Pod-level resources after admission.
	PodResources = "PodLevelResourcesFixDefaulting"
	// VolumeLimits gives CSIDrivers the field preventPodSchedulingIfMissing, with a default.
	VolumeLimits = "VolumeLimitScaling"

	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// behaviour are the gates that the constants name, but for those of fields, which the table of fields has.
var behaviour = []string{allAlpha, allBeta, CBOR, UnsafeDeletion, ExcludedReviews, ShardedLists, UnmanagedResponses, StaticManifests, StreamCompression, AutoscalerGeneration, ScaleToZero, RelaxedServiceNames, PodResources}

// Stage is the maturity of a feature.
type Stage uint8

// The stages.
const (
	Alpha Stage = iota
	Beta
	Stable
	Deprecated
	// Unknown is the stage before the first version that has the gate.
	Unknown
)

// String returns the stage as kube-apiserver's metrics show it: "ALPHA", "BETA", "" for a stable feature, or "DEPRECATED".
func (s Stage) String() string { return [...]string{"ALPHA", "BETA", "", "DEPRECATED", "PRE-ALPHA"}[s] }

// Gate is the state of a feature gate in one version.
type Gate struct {
	Stage Stage
	// On is the default.
	On bool
	// Locked: the gate cannot have another value.
	Locked bool
}

// Spec is the state of a gate from a minor version on.
type Spec struct {
	Since uint8
	Gate
	// Compat is the oldest minor version with which a server that has this state is compatible; zero: any.
	Compat uint8
}

// gate is a row of the table of gates.
type gate struct {
	name  string
	specs []Spec
	// until is the last minor version that has the gate; zero: it is not removed.
	until uint8
	// early: a later version of Kubernetes than the newest one here has the gate. It counts as one of the newest.
	early bool
	// needs are the gates that have to be enabled if this one is.
	needs []string
}

// index returns the place of a gate of the newest version in the table.
func index(name string) (i int, ok bool) {
	i, ok = slices.BinarySearchFunc(gates, name, func(g gate, name string) int { return cmp.Compare(g.name, name) })
	return i, ok && gates[i].until == 0
}

// at returns the state of a gate in a version.
func (g *gate) at(v Versions) Gate {
	for _, s := range slices.Backward(g.specs) {
		if int(s.Since) <= v.Emulated && int(s.Compat) <= v.MinCompatible {
			return s.Gate
		}
	}
	return Gate{Stage: Unknown}
}

// Of returns the gate with a name in the profile; ok is false if the newest version of Kubernetes has no such gate.
func (p *Profile) Of(name string) (g Gate, ok bool) {
	i, ok := index(name)
	if !ok {
		return Gate{}, false
	}
	return gates[i].at(p.Versions), true
}

// Known returns the gates that change what a server does, apart from those of fields, with their defaults in the newest
// version.
func Known() map[string]bool {
	known := map[string]bool{}
	add := func(name string) {
		i, _ := index(name)
		known[name] = gates[i].at(Versions{newest, newest - 1}).On
	}
	for _, name := range behaviour {
		add(name)
	}
	for i := range kinds {
		if name := kinds[i].Gates; name != "" {
			add(name)
		}
	}
	return known
}

// effective reports whether a gate changes what a server does.
func effective(name string) bool {
	if _, known := Known()[name]; known {
		return true
	}
	return slices.ContainsFunc(fields, func(f API) bool { return slices.Contains(f.gates(), name) })
}

// WithoutEffect returns the gates that were set to another value than the default, and that change nothing in this server,
// sorted.
func (p *Profile) WithoutEffect() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(p.set)) {
		if g, _ := p.Of(name); p.set[name] != g.On && !effective(name) {
			names = append(names, name)
		}
	}
	return names
}

// CheckName returns an error unless the newest version of Kubernetes has a gate.
func CheckName(name string) error {
	if _, ok := index(name); !ok {
		return fmt.Errorf("there is no feature gate %q in Kubernetes 1.%d; gates with an effect: %s, and those of fields", name, newest, strings.Join(slices.Sorted(maps.Keys(Known())), ", "))
	}
	return nil
}
