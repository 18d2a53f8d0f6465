package registry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// goneList is the message of a list at a revision below the history.
const goneList = "The resourceVersion for the provided list is too old."

// status converts an error of the store to an API status.
func status(err error) error {
	if err == nil {
		return nil // without the allocations below
	}
	var tooLarge *store.TooLargeError
	var expired *store.ExpiredError
	var quota *store.QuotaError
	var down *store.UnavailableError
	switch {
	case errors.Is(err, store.ErrUnknown): // before the errors that it wraps: it has no Retry-After
		return apierrors.NewTimeoutError("the write may have been made, or may still be: "+err.Error(), 0)
	case errors.As(err, &down):
		s := apierrors.NewServiceUnavailable(err.Error() + "; nothing was written")
		s.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retrySeconds(down)}
		return s
	case errors.Is(err, store.ErrOverloaded):
		return apierrors.NewTooManyRequests("too many writes are under way, please try again later", 1)
	case errors.As(err, &tooLarge):
		return tooLargeStatus(tooLarge)
	case errors.As(err, &expired):
		return apierrors.NewResourceExpired(goneList)
	case errors.Is(err, store.ErrNoSpace):
		return coded(507, "InsufficientStorage", err.Error()+"; reads and deletions go on")
	case errors.As(err, &quota) && quota.AllForks:
		return coded(507, "InsufficientStorage", err.Error()+"; delete forks, or start the server with a higher --fork-max-total-bytes; reads, deletions and updates that do not grow objects go on")
	case errors.As(err, &quota) && quota.Fork:
		return coded(507, "InsufficientStorage", err.Error()+"; delete objects of the fork, or start the server with a higher --fork-max-bytes, half of which is for objects; reads, deletions and updates that do not grow objects go on")
	case errors.As(err, &quota):
		return coded(507, "InsufficientStorage", err.Error()+"; delete objects, or start the server with a higher --storage-max-bytes; reads, deletions and updates that do not grow objects go on")
	case errors.Is(err, store.ErrStale):
		return apierrors.NewTimeoutError("other requests changed what this one depends on, please try again later", 1)
	case errors.Is(err, store.ErrClosed):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError("request did not complete within requested timeout - "+err.Error(), 0)
	}
	return err
}

// ReadStatus converts an error of Store.MostRecent to an API status.
func ReadStatus(err error) error { return readStatus(err) }

// WriteStatus converts an error of Store.MostRecent to the API status of a write that was not tried.
func WriteStatus(err error) error { return status(err) }

// unreadable returns the error of a request for an object that cannot be read; nil: it can.
func unreadable(o *store.Object) error {
	if why := o.Unreadable(); why != "" {
		return apierrors.NewInternalError(errors.New(why))
	}
	return nil
}

// transformError begins the errors about values that cannot be decrypted. The key follows.
const transformError = "unable to transform key"

// allReadable returns an error unless all objects of a list can be read, whatever it selects.
func (r *Registry) allReadable(t Target, all iter.Seq2[*store.Object, error]) error {
	for o, err := range all {
		if err != nil {
			return err
		}
		switch why := o.Unreadable(); {
		case strings.HasPrefix(why, transformError):
			return unreadable(o) // the error names the key
		case why != "":
			at := t
			at.Namespace, at.Name = t.split(o.Key)
			return apierrors.NewInternalError(fmt.Errorf("%s %q: %s", transformError, storageKey(at), why))
		}
	}
	return nil
}

// readStatus is status for a read of the most recent state, which can be repeated.
func readStatus(err error) error {
	if err == nil {
		return nil // before down, which each call would allocate
	}
	var down *store.UnavailableError
	if errors.As(err, &down) {
		return apierrors.NewTimeoutError(err.Error(), int(retrySeconds(down)))
	}
	return status(err)
}

// retrySeconds is after how many seconds to try again, at least one.
func retrySeconds(e *store.UnavailableError) int32 {
	return int32(max(1, min(math.Ceil(e.RetryAfter.Seconds()), 60)))
}

// tooLargeStatus is the response to a read at a revision that is not reached in time.
func tooLargeStatus(e *store.TooLargeError) *apierrors.StatusError {
	s := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", e.Revision, e.Current), 1)
	s.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return s
}

// NotImplemented is the response 501 to a request that this version does not serve. Nothing was
// changed.
func NotImplemented(what string) error {
	return coded(501, "NotImplemented", what+": not served by this version; nothing was changed")
}

func coded(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// changedText is the message of a conflict between two writes.
const changedText = "the object has been modified; please apply your changes to the latest version and try again"

func conflict(t Target, why error) error {
	return apierrors.NewConflict(t.Type.GroupResource(), t.Name, why)
}

// uidConflict is the error of a UID that the object does not have.
func (w *write) uidConflict(sent, have string) error {
	return w.invalidObject(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", sent, have))
}

// invalidObject is the conflict that kube-apiserver's storage finds.
func (w *write) invalidObject(why string) error {
	key := storageKey(w.Target)
	if w.dryRun { // it does not reach etcd
		key = strings.TrimPrefix(key, storageRoot)
	}
	return conflict(w.Target, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s", key, why))
}

// preconditionFailed returns the error for a precondition that does not hold.
func preconditionFailed(what, sent, have string) error {
	return fmt.Errorf("%s: %s in precondition: %s, %[2]s in object meta: %[4]s", "Precondition failed", what, sent, have)
}

// takenError is the error of a create whose name is taken. It is store.ErrExists.
type takenError struct{ *apierrors.StatusError }

func (e *takenError) Is(target error) bool { return target == store.ErrExists }

func isTaken(err error) bool { return errors.Is(err, store.ErrExists) }

// conflicts reports whether another request has changed or deleted the object first.
func conflicts(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
}

// restarts reports whether the request has to start again, because state that it depends on has
// changed.
func restarts(err error) bool { return errors.Is(err, store.ErrStale) }

// conflictStatus is the response to a request that another request has beaten.
func conflictStatus(t Target, err error) error {
	switch {
	case errors.Is(err, store.ErrConflict):
		return conflict(t, errors.New(changedText))
	case errors.Is(err, store.ErrNotFound):
		return t.notFound()
	}
	return err
}

// unstorable returns the response to a write that the store cannot keep. Earlier checks reject most
// such objects with better messages.
func unstorable(t Target, err error) error {
	var refused *store.UnfitError
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Size:
		return apierrors.NewRequestEntityTooLargeError("the object cannot be stored: " + refused.Why)
	case refused.Parts:
		s := apierrors.NewInvalid(t.Type.GroupVersionKind().GroupKind(), t.Name, nil)
		s.ErrStatus.Message += ": it cannot be stored: " + refused.Why
		return s
	}
	return apierrors.NewInvalid(t.Type.GroupVersionKind().GroupKind(), t.Name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "name"), t.Name, "the object cannot be stored: "+refused.Why),
	})
}
