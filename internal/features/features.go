// Package features has the feature gates of kube-apiserver: their stages and defaults, and which of them a server reads.
package features

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// CBOR affects serving alone: objects are always stored as JSON.
	CBOR = "CBORServingAndStorage"
	// UnsafeDeletion lets clients delete objects that cannot be read. If it is set to true, and not only on by default, a
	// server also starts on a data directory if it cannot decrypt some values, whatever the reason.
	UnsafeDeletion = "AllowUnsafeMalformedObjectDeletion"
	// ExcludedReviews hides reviews of tokens and access from admission webhooks.
	ExcludedReviews = "ExcludeAdmissionWebhookVirtualResources"
	// StreamCompression compresses watches that begin with the present objects.
	StreamCompression = "WatchListCompression"
)

// read are the gates that change what a server does.
var read = []string{CBOR, UnsafeDeletion, ExcludedReviews, StreamCompression}

// Known returns the gates that change what a server does, with their defaults.
func Known() map[string]bool {
	known := make(map[string]bool, len(read))
	for _, name := range read {
		known[name] = gates[name].On
	}
	return known
}

// Of returns the gate with a name; ok is false if Kubernetes 1.37 has no such gate.
func Of(name string) (g Gate, ok bool) {
	g, ok = gates[name]
	return g, ok
}

// Default reports whether a feature is on by default.
func Default(name string) bool { return gates[name].On }

// Enabled reports whether a feature is enabled by gates that were set.
func Enabled(set map[string]bool, name string) bool {
	if on, said := set[name]; said {
		return on
	}
	return Default(name)
}

// WithoutEffect returns the gates that have another value than the default, and that change nothing in this server, sorted.
func WithoutEffect(set map[string]bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] != Default(name) && !slices.Contains(read, name) {
			names = append(names, name)
		}
	}
	return names
}

// Check returns an error for unknown gates, and for locked ones that have another value than the default.
func Check(set map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if err := CheckOne(name, set[name]); err != nil {
			return err
		}
	}
	return nil
}

// CheckOne is Check for one gate.
func CheckOne(name string, on bool) error {
	g, ok := gates[name]
	switch {
	case !ok:
		return fmt.Errorf("there is no feature gate %q in Kubernetes 1.37; gates with an effect: %s", name, strings.Join(slices.Sorted(slices.Values(read)), ", "))
	case g.Locked && on != g.On:
		return fmt.Errorf("cannot set feature gate %s to %t, feature is locked to %t", name, on, g.On)
	}
	return nil
}
