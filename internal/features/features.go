// Package features has the feature gates of kube-apiserver that a server knows.
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

// known are the gates with their defaults.
var known = map[string]bool{
	CBOR:              false,
	UnsafeDeletion:    true,
	ExcludedReviews:   true,
	StreamCompression: true,
}

// Known returns the gates with their defaults.
func Known() map[string]bool { return maps.Clone(known) }

// Enabled reports whether a feature is enabled by gates that were set.
func Enabled(gates map[string]bool, name string) bool {
	if on, said := gates[name]; said {
		return on
	}
	return known[name]
}

// Check returns an error for unknown gates.
func Check(gates map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if _, ok := known[name]; !ok {
			return fmt.Errorf("there is no feature gate %q; known gates: %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return nil
}
