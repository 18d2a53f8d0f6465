package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	remote "github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	// maxResponseBytes limits a response. The largest object is 3 MiB, and a patch is in base64.
	maxResponseBytes = 8 << 20
	// maxResponseValues limits the values in a response, since small values need much more memory
	// than text.
	maxResponseValues = 100_000
	// maxOddBytes limits a response that is not the expected JSON. The decoder for other formats is
	// slower.
	maxOddBytes = 256 << 10
	// maxQuotedBytes limits the text of an HTTP error before spaces are trimmed.
	maxQuotedBytes = 2 << 10
	// maxWarnings and maxWarningBytes limit the warnings of a response that are kept. The headers
	// of the response to the client have less room.
	maxWarnings, maxWarningBytes = 1000, 4 << 10
)

// response is a checked response.
type response struct {
	allowed     bool
	result      *metav1.Status
	patch       []byte
	patchType   admissionv1.PatchType
	annotations map[string]string
	warnings    []string
}

// reviewResponse is the part of an AdmissionReview that is read. Both versions have the same
// members.
type reviewResponse struct {
	metav1.TypeMeta `json:",inline"`
	Response        *admissionv1.AdmissionResponse `json:"response,omitempty"`
}

// readResponse reads the response of a webhook to a review of a version. The errors are those of
// kube-apiserver, but an error does not quote a successful response that is not a review.
func readResponse(got *remote.Response, version string) (*reviewResponse, error) {
	if got.ContentType != "" {
		if _, _, err := mime.ParseMediaType(got.ContentType); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	if got.Code < http.StatusOK || got.Code > http.StatusPartialContent {
		return nil, unsuccessful(got)
	}
	if len(got.Body) == 0 {
		return nil, fmt.Errorf("0-length response with status code: %d and content type: %s", got.Code, remote.Cut(got.ContentType))
	}
	if values(got.Body) > maxResponseValues {
		return nil, fmt.Errorf("the response has more than %d values", maxResponseValues)
	}
	var r reviewResponse
	if bytes.HasPrefix(got.Body, []byte("{")) {
		err := kjson.UnmarshalCaseSensitivePreserveInts(got.Body, &r)
		if err == nil && r.APIVersion == "admission.k8s.io/"+version && r.Kind == "AdmissionReview" {
			return &r, nil
		}
	}
	if len(got.Body) > maxOddBytes {
		return nil, errors.New("the response is not an AdmissionReview in JSON")
	}
	return decodeOdd(got.Body, version)
}

// values returns an upper limit of the values in a JSON text.
func values(text []byte) int {
	return bytes.Count(text, []byte(",")) + bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{"))
}

// unsuccessful returns the error of a response whose code is not a success: that of a Status, or else
// one that follows from the code, with the beginning of a text. Clients that may configure webhooks can
// read every object anyway, and no address is called that only this machine should reach.
func unsuccessful(got *remote.Response) error {
	seconds, message := int(got.RetryAfter.Seconds()), "unknown"
	if got.ContentType == "" || strings.HasPrefix(got.ContentType, "text/") {
		message = remote.Cut(strings.TrimSpace(string(got.Body[:min(len(got.Body), maxQuotedBytes)])))
	}
	err := apierrors.NewGenericServerResponse(got.Code, http.MethodPost, schema.GroupResource{}, "", message, seconds, true)
	if len(got.Body) == 0 || len(got.Body) > maxOddBytes || !apierrors.IsUnexpectedServerError(err) {
		return err
	}
	var s metav1.Status
	if kjson.UnmarshalCaseSensitivePreserveInts(got.Body, &s) != nil || s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure {
		return err
	}
	s.Message = remote.Cut(s.Message)
	return apierrors.FromObject(&s)
}

// codec decodes reviews in every format that kube-apiserver reads.
var codec = func() runtime.Codec {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1beta1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1beta1.SchemeGroupVersion, admissionv1.SchemeGroupVersion)
}()

// decodeOdd decodes a response that is not JSON, or has another version or kind.
func decodeOdd(body []byte, version string) (*reviewResponse, error) {
	var into runtime.Object
	v1, v1beta1 := &admissionv1.AdmissionReview{}, &admissionv1beta1.AdmissionReview{}
	if into = v1; version == "v1beta1" {
		into = v1beta1
	}
	out, _, err := codec.Decode(body, nil, into)
	if err != nil {
		return nil, errors.New(remote.Cut(err.Error()))
	}
	if s, ok := out.(*metav1.Status); ok && s.Status != metav1.StatusSuccess {
		s.Message = remote.Cut(s.Message)
		return nil, apierrors.FromObject(s)
	}
	if version == "v1" {
		return &reviewResponse{TypeMeta: v1.TypeMeta, Response: v1.Response}, nil
	}
	r := &reviewResponse{TypeMeta: v1beta1.TypeMeta}
	if b := v1beta1.Response; b != nil {
		r.Response = &admissionv1.AdmissionResponse{
			UID: b.UID, Allowed: b.Allowed, Result: b.Result, Patch: b.Patch, PatchType: (*admissionv1.PatchType)(b.PatchType),
			AuditAnnotations: b.AuditAnnotations, Warnings: b.Warnings,
		}
	}
	return r, nil
}

// check returns the response to the review with that UID, or why it is not valid. Less is required of
// v1beta1.
func (r *reviewResponse) check(p phase, version, uid string) (*response, error) {
	if r.Response == nil {
		return nil, errors.New("webhook response was absent")
	}
	checked := &response{allowed: r.Response.Allowed, result: r.Response.Result, annotations: r.Response.AuditAnnotations, warnings: r.Response.Warnings}
	if version == "v1" {
		return checked, r.checkV1(p, checked, types.UID(uid))
	}
	if p == admit && len(r.Response.Patch) > 0 {
		checked.patch, checked.patchType = r.Response.Patch, admissionv1.PatchTypeJSONPatch
	}
	return checked, nil
}

func (r *reviewResponse) checkV1(p phase, checked *response, uid types.UID) error {
	a, want := r.Response, admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	if a.UID != uid {
		return fmt.Errorf("expected response.uid=%q, got %q", uid, remote.Cut(a.UID))
	}
	if got := r.GroupVersionKind(); got != want {
		return fmt.Errorf("expected webhook response of %v, got %v", want, remote.Cut(got.String()))
	}
	switch {
	case p == validating && len(a.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case p == validating && a.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case len(a.Patch) > 0 && a.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(a.Patch) == 0 && a.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	}
	checked.patch = a.Patch
	if a.PatchType != nil {
		if checked.patchType = *a.PatchType; checked.patchType == "" {
			return fmt.Errorf("webhook returned invalid response.patchType of %q", checked.patchType)
		}
	}
	return nil
}

// refusal returns the error of a request that a webhook refuses, with the webhook's code, reason and
// details.
func refusal(webhook string, result *metav1.Status) *apierrors.StatusError {
	s := metav1.Status{Status: metav1.StatusFailure}
	if result != nil {
		s = *result
	}
	if s.Code < http.StatusBadRequest {
		s.Code = http.StatusBadRequest
	}
	if s.Code > 999 { // HTTP has no such code
		s.Code = http.StatusInternalServerError
	}
	if s.Status == "" || s.Status == metav1.StatusSuccess {
		s.Status = metav1.StatusFailure
	}
	denied := fmt.Sprintf("admission webhook %q denied the request", webhook)
	switch {
	case s.Message != "":
		s.Message = denied + ": " + s.Message
	case s.Reason != "":
		s.Message = denied + ": " + string(s.Reason)
	default:
		s.Message = denied + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: s}
}

// validKey reports whether an audit annotation may have a key. Others are dropped.
func validKey(key string) bool {
	return strings.Count(key, "/") == 1 && len(validation.IsQualifiedName(key)) == 0
}
