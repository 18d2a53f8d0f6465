package tidemark

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cborGate is kube-apiserver's name. Here it affects serving alone: objects are always
// stored as JSON.
const cborGate = "CBORServingAndStorage"

// unsafeDeletionGate is kube-apiserver's name. With it, a server also starts on a data directory if it cannot decrypt some
// values, whatever the reason.
const unsafeDeletionGate = "AllowUnsafeMalformedObjectDeletion"

// featureGates are the known gates with their defaults.
var featureGates = map[string]bool{
	cborGate:           false,
	unsafeDeletionGate: false,
}

// KnownFeatureGates returns the feature gates of kube-apiserver that a Server knows, with their
// defaults.
func KnownFeatureGates() map[string]bool { return maps.Clone(featureGates) }

// enabled reports whether a feature is enabled.
func (s *Server) enabled(gate string) bool {
	if on, said := s.FeatureGates[gate]; said {
		return on
	}
	return featureGates[gate]
}

// checkFeatureGates returns an error for unknown gates.
func (s *Server) checkFeatureGates() error {
	for _, name := range slices.Sorted(maps.Keys(s.FeatureGates)) {
		if _, known := featureGates[name]; !known {
			return fmt.Errorf("there is no feature gate %q; known gates: %s", name, strings.Join(slices.Sorted(maps.Keys(featureGates)), ", "))
		}
	}
	return nil
}
