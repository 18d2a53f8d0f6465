package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// goneList is what a list says of a revision below the history: row P1.
const goneList = "The resourceVersion for the provided list is too old."

// status turns an error of the store into what clients understand.
func status(err error) error {
	if err == nil {
		return nil // before anything is allocated
	}
	var tooLarge *store.TooLargeError
	var expired *store.ExpiredError
	var quota *store.QuotaError
	switch {
	case errors.As(err, &tooLarge):
		return tooLargeStatus(tooLarge)
	case errors.As(err, &expired):
		return apierrors.NewResourceExpired(goneList)
	case errors.Is(err, store.ErrBusy):
		return apierrors.NewTooManyRequests("too many requests read old history at once, please try again later", 1)
	case errors.Is(err, store.ErrNoSpace):
		return coded(507, "InsufficientStorage", err.Error()+"; reads and deletions go on")
	case errors.As(err, &quota):
		return coded(507, "InsufficientStorage", err.Error()+"; delete objects, or start the server with a higher --storage-max-bytes; reads, deletions and updates that do not grow objects go on")
	case errors.Is(err, store.ErrClosed):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError("request did not complete within requested timeout - "+err.Error(), 0)
	}
	return err
}

// tooLargeStatus is the answer to a revision that is not reached: row P4.
func tooLargeStatus(e *store.TooLargeError) *apierrors.StatusError {
	s := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", e.Revision, e.Current), 1)
	s.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return s
}

// NotImplemented refuses what is not there yet, with nothing done: 501.
func NotImplemented(what string) error {
	return coded(501, "NotImplemented", what+": not served by this version; nothing was changed")
}

func coded(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}
