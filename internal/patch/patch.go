// Package patch applies patches to JSON documents: JSON patch (RFC 6902), JSON merge patch
// (RFC 7386) and strategic merge patch. The cost of a patch is bounded. An invalid patch is
// an *apierrors.StatusError with the text of kube-apiserver. The functions are pure, and
// safe for concurrent use.
package patch

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// MaxOperations is the largest number of operations in a JSON patch.
	MaxOperations = 10000
	// MaxBytes bounds the patched document, by its Size: the size of the largest body and
	// the largest stored object. A JSON patch whose copies exceed it in between is refused
	// as well.
	MaxBytes = 3 << 20
)

// A Patched is a patched document.
type Patched struct {
	// Document is the result.
	Document []byte
	// Shown returns the text by which an error about the result names it: the document, or
	// the patch.
	Shown func() string
	// Values returns the result of a strategic merge patch as values. Unlike in Document, 1e3 is
	// a float64 in them, which messages of kube-apiserver name. It is nil for other patches.
	Values func() (map[string]any, error)
	// Complaints are the errors of field validation about the patch itself: duplicate
	// members, and unknown members of operations. Empty: none.
	Complaints []string
}

// CheckText returns the error for a patch whose text is not JSON: a bad request. The patch is of any kind
// but a server-side apply.
func CheckText(patch []byte) error {
	if jsontext.Value(patch).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return nil
	}
	return apierrors.NewBadRequest("invalid JSON patch")
}

// JSON applies a JSON patch. Validate finds the Complaints. A patch that cannot be read for them has
// an error of its own, as in kube-apiserver.
func JSON(document, patch []byte, validate bool) (Patched, error) {
	var complaints []string
	if validate {
		var err error
		if complaints, err = operationComplaints(patch); err != nil {
			return Patched{}, err
		}
	}
	operations, err := Decode(patch)
	if err != nil {
		return Patched{}, apierrors.NewBadRequest(err.Error())
	}
	if err := operations.bound(document); err != nil {
		return Patched{}, err
	}
	out, err := applyAll(document, operations.all, MaxBytes)
	var failed *operationError
	if errors.As(err, &failed) {
		err = unprocessable(failed.error)
	}
	if err != nil {
		return Patched{}, err
	}
	return patched(out, complaints)
}

// Merge applies a JSON merge patch. Validate finds the Complaints, as in JSON.
func Merge(document, patch []byte, validate bool) (Patched, error) {
	if bytes.Equal(bytes.TrimSpace(patch), []byte("null")) {
		return Patched{}, apierrors.NewBadRequest(jsonpatch.ErrBadJSONPatch.Error())
	}
	var complaints []string
	if validate {
		var err error
		if complaints, err = memberComplaints(patch); err != nil {
			return Patched{}, apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
	}
	out, err := mergeObjects(document, patch)
	if err != nil {
		out, err = guarded(func() ([]byte, error) { return jsonpatch.MergePatch(document, patch) })
	}
	if err != nil {
		return Patched{}, apierrors.NewBadRequest(err.Error())
	}
	return patched(out, complaints)
}

// Strategic applies a strategic merge patch to a document of a Go type, whose fields define
// how lists are merged. like is a value of that type. Strings for kind and apiVersion in a
// patch are ignored, as in kube-apiserver.
func Strategic(document, patch []byte, like any) (Patched, error) {
	var change map[string]any
	strict, err := kjson.UnmarshalStrict(patch, &change)
	if err != nil {
		return Patched{}, apierrors.NewBadRequest(err.Error())
	}
	if change == nil {
		change = map[string]any{}
	}
	original, err := touched(document, change)
	if err != nil { // of a document that jsontext does not take
		original = nil
		if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &original); err != nil {
			return Patched{}, fmt.Errorf("the document to patch: %w", err)
		}
	}
	if err := boundMerge(original, change); err != nil {
		return Patched{}, err
	}
	kind, version := original["kind"], original["apiVersion"]
	merged, err := guarded(func() (strategicpatch.JSONMap, error) {
		return strategicpatch.StrategicMergeMapPatch(original, change, like)
	})
	if err != nil {
		return Patched{}, strategicError(err)
	}
	for name, was := range map[string]any{"kind": kind, "apiVersion": version} {
		switch merged[name].(type) {
		case string, nil:
			merged[name] = was
		} // other values stay, and the result cannot be decoded
	}
	// Sorted by name, which is the order of errors about the result.
	out, err := fastjson.Marshal(merged, fastjson.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if err != nil {
		return Patched{}, apierrors.NewBadRequest(err.Error())
	}
	p, err := patched(out, texts("", strict))
	p.Shown = func() string { return fmt.Sprintf("%+v", change) } // without what the library removed from it, as in kube-apiserver
	p.Values = func() (map[string]any, error) { return merged, decodeRest(map[string]any(merged)) }
	return p, err
}

// guarded calls a library with a client's patch. Some patches make the library panic, for
// example [{"op":"test","path":""}]: that is an error of the client.
func guarded[T any](apply func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the patch cannot be applied: %v", p)
		}
	}()
	return apply()
}

// Size returns the size of a JSON document in bytes, with each escape that encoding/json
// writes for HTML's sake (< > &) counted as one byte: so an object has the same size here
// as in the body that it came from.
func Size(document []byte) int {
	if len(document) <= MaxBytes {
		return len(document) // no caller needs more, and it is nearly always so
	}
	n := len(document)
	for _, escape := range []string{`\u003c`, `\u003e`, `\u0026`} {
		n -= (len(escape) - 1) * bytes.Count(document, []byte(escape))
	}
	return n
}

func patched(document []byte, complaints []string) (Patched, error) {
	if Size(document) > MaxBytes {
		return Patched{}, tooLarge()
	}
	return Patched{Document: document, Shown: func() string { return string(document) }, Complaints: complaints}, nil
}

func tooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("what the patch makes is larger than %d bytes", MaxBytes))
}

// unprocessable is the error for a patch that does not fit the document.
func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// strategicError is the error of a strategic merge patch. An error that kube-apiserver has
// no text for is a client error as well.
func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return unprocessable(err)
	}
	return apierrors.NewBadRequest(err.Error())
}

// jsonPatchOp is an operation of a JSON patch. Its name is part of error messages.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func operationComplaints(patch []byte) ([]string, error) {
	var operations []jsonPatchOp
	strict, err := kjson.UnmarshalStrict(patch, &operations)
	if err != nil {
		return nil, apierrors.NewBadRequest("error decoding patch: " + strings.ReplaceAll(err.Error(), "patch.jsonPatchOp", "handlers.jsonPatchOp"))
	}
	return texts("json patch ", strict), nil
}

func memberComplaints(patch []byte) ([]string, error) {
	var members map[string]any
	strict, err := kjson.UnmarshalStrict(patch, &members)
	return texts("", strict), err
}

func texts(prefix string, errs []error) []string {
	var all []string
	for _, err := range errs {
		all = append(all, prefix+err.Error())
	}
	return all
}
