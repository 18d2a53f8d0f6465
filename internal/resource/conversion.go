package resource

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
)

// Conversion converts between the version of a Type and the stored version. Its
// functions may modify their arguments. A webhook that they call is abandoned when the
// context is done.
type Conversion struct {
	// Stored is the Type of the stored version.
	Stored     *Type
	ToStored   func(context.Context, runtime.Object) (runtime.Object, error)
	FromStored func(context.Context, runtime.Object) (runtime.Object, error)
	// FromStoredAll converts several objects at once and keeps their order. It is set
	// where a webhook converts, because one call for all is cheaper.
	FromStoredAll func(context.Context, []runtime.Object) ([]runtime.Object, error)
	// AlreadyCurrent reports whether FromStored is sure to leave a stored value as it
	// is; nil: it never is sure.
	AlreadyCurrent func(value []byte) bool
	// PerRequest: objects are converted when they are read and again when they are
	// stored, and the strategy runs in this version. Otherwise what a client sends is
	// defaulted in this version, converted once, and the strategy of the stored version
	// does the rest.
	PerRequest bool
}

// StoredVersion returns the Type of the stored version, which may be t itself.
func (t *Type) StoredVersion() *Type {
	if t.Conversion == nil {
		return t
	}
	return t.Conversion.Stored
}

// StrategyVersion returns the Type whose strategy applies to writes. Objects are in its
// version then.
func (t *Type) StrategyVersion() *Type {
	if t.ConvertsPerRequest() {
		return t
	}
	return t.StoredVersion()
}

// ConvertsPerRequest reports whether there is a Conversion with PerRequest.
func (t *Type) ConvertsPerRequest() bool { return t.Conversion != nil && t.Conversion.PerRequest }

// ConvertsByWebhook reports whether a webhook converts, which may be slow.
func (t *Type) ConvertsByWebhook() bool {
	return t.Conversion != nil && t.Conversion.FromStoredAll != nil
}
