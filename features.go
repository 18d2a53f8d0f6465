package tidemark

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cborGate is kube-apiserver's name. Here it is about serving alone: what is stored
// stays JSON.
const cborGate = "CBORServingAndStorage"

// featureGates are the gates that there are, with what each is where nothing is said.
var featureGates = map[string]bool{
	cborGate: false,
}

// KnownFeatureGates returns the names of the gates that a Server knows, with what each is
// where nothing is said: those of kube-apiserver that switch something here.
func KnownFeatureGates() map[string]bool { return maps.Clone(featureGates) }

// enabled reports whether a feature is on.
func (s *Server) enabled(gate string) bool {
	if on, said := s.FeatureGates[gate]; said {
		return on
	}
	return featureGates[gate]
}

// checkFeatureGates finds names that mean nothing here.
func (s *Server) checkFeatureGates() error {
	for _, name := range slices.Sorted(maps.Keys(s.FeatureGates)) {
		if _, known := featureGates[name]; !known {
			return fmt.Errorf("there is no feature gate %q; those that there are: %s", name, strings.Join(slices.Sorted(maps.Keys(featureGates)), ", "))
		}
	}
	return nil
}
