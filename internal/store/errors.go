package store

import (
	"errors"
	"fmt"
)

var (
	// ErrExists: the object is there already.
	ErrExists = errors.New("the object exists")
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("no such object")
	// ErrConflict: the object is not at the revision of the condition.
	ErrConflict = errors.New("the object was changed")
	// ErrNoSpace: the medium is full. Nothing was written, and reads still work. Errors that
	// wrap it name the medium.
	ErrNoSpace = errors.New("no space left for writes")
	// ErrOverloaded: too many writes are under way on a Shared, here or in the log. Nothing was
	// written; reads of the log can fail with it, too. Try again later.
	ErrOverloaded = errors.New("too many writes are under way")
	// ErrTooMuchHistory: the changes do not fit into the history of a fork.
	ErrTooMuchHistory = errors.New("the changes take more memory than the history of a fork may")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the store is closed")
)

// ExpiredError: the revision is below the history.
type ExpiredError struct{ Revision, Floor Revision }

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("revision %d is gone: the history begins at %d", e.Revision, e.Floor)
}

// TooLargeError: the revision lies in the future.
type TooLargeError struct{ Revision, Current Revision }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("revision %d is not reached yet: the newest is %d", e.Revision, e.Current)
}

// ErrEncrypt: a value cannot be encrypted now, and nothing of its group was appended.
var ErrEncrypt = errors.New("the value cannot be encrypted")

// UnfitError: the log cannot store the write, because of its key, its size or the other writes of its transaction. Nothing
// was written, and other writes are not affected.
type UnfitError struct {
	// Key of the write, shortened if it is long.
	Key string
	// Why is the reason.
	Why string
	// Size reports that the value is too large, Parts that the transaction has too many writes or conditions.
	// Otherwise the key is invalid.
	Size, Parts bool
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("the write of %q cannot be kept: %s", e.Key, e.Why)
}
