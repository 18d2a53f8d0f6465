package resource

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy is the rules for writes of a kind: defaulting, validation, immutable fields and
// deletion. The zero value has no rules of its own. A nil function does nothing.
type Strategy struct {
	// Relation returns how another kind relates to this one; nil: all others are unknown.
	Relation func(schema.GroupVersionKind) Relation
	// Default sets the defaults of missing members. It runs on create and update, in the
	// version that the client sent, after a name is generated and before conversion and
	// validation.
	Default func(runtime.Object)
	// PrepareCreate sets the members of a new object that only the server may set. No field
	// manager owns them.
	PrepareCreate func(runtime.Object)
	// SetCreator records the user in a new object.
	SetCreator func(o runtime.Object, by authenticationv1.UserInfo)
	// PrepareUpdate restores the fields that an update of the object itself cannot change. The
	// status and the system metadata are restored already. It returns sent if there is nothing to
	// restore, and otherwise a copy. It must not modify its arguments: field managers own the
	// fields as the client sent them.
	PrepareUpdate func(sent, current runtime.Object) runtime.Object

	// Disabled clears the fields of disabled features, and reports whether there were any. Old is the
	// stored object, nil for a new one: fields of a feature that it uses stay. If keep is true, nothing
	// is cleared. Field managers own the fields that the client sent. Nil: all fields are known.
	Disabled func(o, old runtime.Object, keep bool) bool

	// Validate checks a new object, ValidateUpdate the result of an update of the object
	// itself, without metadata. Paths, messages and their order are those of
	// kube-apiserver. They must not modify their arguments. When the context is done they
	// may return early, and the result is discarded. Where a converted version has them as
	// well as the stored one, its own are called, with objects in the stored version.
	Validate       func(ctx context.Context, o runtime.Object) field.ErrorList
	ValidateUpdate func(ctx context.Context, o, old runtime.Object) field.ErrorList
	// Declared returns the errors of the other checks and of the rules that the Go type of the
	// stored version declares. Old is nil for a new object; subresource is "" for the object
	// itself. Nil: the type declares none.
	Declared func(ctx context.Context, errs field.ErrorList, o, old runtime.Object, subresource string) field.ErrorList
	// Warnings returns the warnings for a create, when old is nil, or for an update of
	// the object itself. Objects are in the stored version.
	Warnings func(o, old runtime.Object) []string
	// Tolerated returns the errors that ValidateUpdate, or Validate of a subresource,
	// ignored because the update did not introduce them. Clients get them as warnings.
	Tolerated func(o runtime.Object) []string

	// AllowCreateOnUpdate: a PUT of an absent object creates it.
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate: a PUT without resourceVersion overwrites.
	AllowUnconditionalUpdate bool

	Metadata   MetadataRules
	Status     StatusRules
	Generation Generation
	Deletion   Deletion
}

// Relation is how another kind relates to a kind. It decides the error for a body of the
// other kind.
type Relation uint8

// The relations.
const (
	// UnknownKind is not served.
	UnknownKind Relation = iota
	// OtherKind cannot be converted to the Type.
	OtherKind
	// OtherVersion is another version of the same kind.
	OtherVersion
	// NotConverted is any other kind, where nothing is ever converted.
	NotConverted
)

// MetadataRules are how metadata is validated.
type MetadataRules struct {
	// ValidateName checks metadata.name, or metadata.generateName if prefix is set, and
	// returns a message for each error. It is never nil in a Catalog.
	ValidateName func(name string, prefix bool) []string
	// AnyFinalizer: names of finalizers need no domain.
	AnyFinalizer bool
	// Recheck is which checks of metadata the kind's own validation repeats. As in
	// kube-apiserver, an error is reported each time it is found.
	Recheck Recheck
}

// Recheck is which checks of metadata are repeated.
type Recheck uint8

// The checks of metadata that the validation of a kind repeats.
const (
	// RecheckAll repeats the checks of an update and of a new object.
	RecheckAll Recheck = iota
	// RecheckUpdate repeats those of an update.
	RecheckUpdate
	// RecheckNew repeats those of a new object.
	RecheckNew
	// RecheckNewTwice does so twice.
	RecheckNewTwice
	// RecheckNothing repeats none. A new object with errors of its kind does not have
	// errors of its metadata reported at all.
	RecheckNothing
)

// StatusRules are how the status of an object is written.
type StatusRules struct {
	// KeepOnCreate: a new object keeps the status that the client sent. Other kinds with
	// a subresource "status" start with an empty one.
	KeepOnCreate bool
	// New fills in the status of a new object after it has been emptied.
	New func(runtime.Object)
	// Fixed are members of metadata that an update of the subresource "status" cannot
	// change.
	Fixed MetadataFields
}

// Generation is how metadata.generation follows the desired state. The zero value
// leaves it as the client sets it.
type Generation struct {
	// Initial is the generation of a new object; zero: the one that the client sent.
	Initial int64
	// CountChanges: every change of the desired state, which is all but metadata and
	// status, adds one.
	CountChanges bool
	// CountMetadata are members of metadata whose changes count as well.
	CountMetadata MetadataFields
	// Exact: an empty list or map instead of none is a change, too.
	Exact bool
}

// Deletion is how objects are deleted.
type Deletion struct {
	// ReturnsObject: the response to an immediate deletion is the object, not a Status.
	ReturnsObject bool
	// GracePeriod makes deletion graceful: it returns the seconds that an object may take to stop.
	// requested is the gracePeriodSeconds of the client, nil if it sent none.
	GracePeriod func(o runtime.Object, requested *int64) int64
	// Blocked reports whether something other than finalizers blocks the deletion of an
	// object: the content of a namespace.
	Blocked func(o runtime.Object) bool
	// Prepare marks an object whose deletion begins, in addition to its metadata.
	Prepare func(o runtime.Object)
	// Policy returns the options that decide whether dependents are deleted or orphaned, or nil if
	// the finalizers of the object stay as they are. A nil func means the options of the request.
	Policy func(o runtime.Object, options *metav1.DeleteOptions) *metav1.DeleteOptions
	// Dependents applies if the request has no propagation policy.
	Dependents Dependents
	// OrphanWarning is the text of a Warning for a request that orphans dependents because it has
	// no propagation policy; empty: none.
	OrphanWarning string
}

// Dependents is the default propagation policy of a kind.
type Dependents uint8

// The defaults for dependents.
const (
	// DeleteDependents deletes them in the background.
	DeleteDependents Dependents = iota
	// OrphanDependents removes the owner reference from them.
	OrphanDependents
	// NoDependents: objects have none, whatever the request has.
	NoDependents
)

// MetadataFields is a set of members of metadata.
type MetadataFields uint8

// The members of metadata that clients write.
const (
	Labels MetadataFields = 1 << iota
	Annotations
	Finalizers
	OwnerReferences

	AllMetadata = Labels | Annotations | Finalizers | OwnerReferences
)

// Has reports whether all of m are in the set.
func (s MetadataFields) Has(m MetadataFields) bool { return s&m == m }
