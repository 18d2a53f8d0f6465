package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// maxTerms bounds the requirements of a selector and their values, together. A list checks
// all of them for each object, a watch for each event.
const maxTerms = authz.MaxSelectorTerms

const (
	// freeSelectors is the memory in bytes that the selectors of a request may take without a charge. The estimate
	// for a waiting request covers it.
	freeSelectors = 1 << 10
	// termBytes is the approximate memory of a parsed term or value of a selector, in addition to its text.
	termBytes = 160
)

// listOptions reads the parameters of a list, a watch or a deletecollection. It charges the selectors to the
// user, from before they are parsed until the request ends: watches, and lists whose clients do not read,
// could otherwise hold gigabytes of them.
func (q *request) listOptions() (*metainternal.ListOptions, error) {
	v := q.query()
	size := 0
	add := func(name string) {
		if s := v.Get(name); s != "" {
			size += len(s) + (1+strings.Count(s, ","))*termBytes
		}
	}
	for _, name := range selectors {
		add(name)
	}
	if q.h.c.ShardedLists {
		add(shardSelector)
	}
	if size > freeSelectors && q.hold(int64(size)) != nil {
		return nil, apierrors.NewTooManyRequests("the selectors of requests take too much memory, please try again later", 1)
	}
	o, err := listOptions(v)
	if err == nil && q.h.c.ShardedLists {
		if err = checkTerms(v, shardSelector); err == nil {
			o.ShardSelector = v.Get(shardSelector)
		}
	}
	return o, err
}

var selectors = [...]string{"labelSelector", "fieldSelector"}

// shardSelector is the parameter that limits a list or a watch to a shard.
const shardSelector = "shardSelector"

// checkTerms returns an error if a selector is too long.
func checkTerms(v url.Values, name string) error {
	if strings.Count(v.Get(name), ",") < maxTerms {
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the %s has more than %d terms and values", name, maxTerms))
}

// listOptions reads the parameters of a list or a watch. Errors of numbers come before
// errors of selectors.
func listOptions(v url.Values) (*metainternal.ListOptions, error) {
	o := &metainternal.ListOptions{
		LabelSelector:        labels.Everything(),
		FieldSelector:        fields.Everything(),
		Watch:                boolean(v, "watch"),
		AllowWatchBookmarks:  boolean(v, "allowWatchBookmarks"),
		ResourceVersion:      v.Get("resourceVersion"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(v.Get("resourceVersionMatch")),
		Continue:             v.Get("continue"),
	}
	var err error
	if v.Has("timeoutSeconds") {
		var seconds int64
		if seconds, err = strconv.ParseInt(v.Get("timeoutSeconds"), 10, 64); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o.TimeoutSeconds = &seconds
	}
	if v.Has("limit") {
		if o.Limit, err = strconv.ParseInt(v.Get("limit"), 10, 64); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if v.Has("sendInitialEvents") {
		send := boolean(v, "sendInitialEvents")
		o.SendInitialEvents = &send
	}
	for _, name := range selectors {
		if err := checkTerms(v, name); err != nil {
			return nil, err
		}
	}
	if s := v.Get("labelSelector"); s != "" {
		if o.LabelSelector, err = labels.Parse(s); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if s := v.Get("fieldSelector"); s != "" {
		if o.FieldSelector, err = fields.ParseSelector(s); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return o, nil
}

// boolean reads a parameter. It is true unless it is absent, 0 or false.
func boolean(v url.Values, name string) bool {
	return v.Has(name) && v.Get(name) != "0" && !strings.EqualFold(v.Get(name), "false")
}

// writeOptions reads the parameters of a create, an update or a patch. The registry checks
// their values.
func (q *request) writeOptions() registry.WriteOptions {
	o := registry.WriteOptions{UserAgent: q.r.UserAgent(), By: q.info.User, Allow: q.alsoAllowed}
	q.observe(&o)
	if q.r.URL.RawQuery == "" {
		return o
	}
	v := q.query()
	o.DryRun = v["dryRun"]
	o.FieldManager = v.Get("fieldManager")
	o.FieldValidation = v.Get("fieldValidation")
	if v.Has("force") {
		force := boolean(v, "force")
		o.Force = &force
	}
	return o
}

// alsoAllowed returns an error unless the user may use another verb on the same target. An
// update or an apply that creates an object needs create, too.
func (q *request) alsoAllowed(verb string) error {
	a := q.info.Attributes
	a.Verb = verb
	return q.may(&a)
}

// deleteOptions reads the options of a deletion from the body, or from the query if there is
// no body.
func (q *request) deleteOptions() (*metav1.DeleteOptions, error) {
	body, err := q.body()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return deleteParameters(q.query())
	}
	media, err := q.inputType()
	if err != nil {
		return nil, err
	}
	o, err := decodeDeleteOptions(media, body)
	if err == nil {
		q.audited.deletes(o)
	}
	return o, err
}

func decodeDeleteOptions(media wire.MediaType, body []byte) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	switch media {
	case wire.Protobuf:
		envelope, err := wire.OpenEnvelope(body)
		if err == nil {
			err = o.Unmarshal(envelope.Raw)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return o, nil
	case wire.CBOR:
		kind, err := wire.ReadOptions(body, metav1.SchemeGroupVersion.WithKind("DeleteOptions"), o)
		return checkDeleteOptions(o, kind, err)
	}
	body = bytes.TrimSpace(body)
	if media == wire.YAML && !bytes.HasPrefix(body, []byte("{")) {
		asJSON, err := wire.FromYAML(body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		body = asJSON
	}
	if err := wire.CheckDepth(body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	head, err := wire.TypeMeta(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if head.APIVersion == "" {
		head.APIVersion = metav1.SchemeGroupVersion.String()
	}
	kind := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	return checkDeleteOptions(o, &kind, kjson.UnmarshalCaseSensitivePreserveInts(body, o))
}

// checkDeleteOptions returns the options, or an error if they have another kind or could not
// be read.
func checkDeleteOptions(o *metav1.DeleteOptions, kind *schema.GroupVersionKind, err error) (*metav1.DeleteOptions, error) {
	var known *apierrors.StatusError
	switch {
	case errors.As(err, &known):
		return nil, err
	case kind != nil && kind.Kind != "" && kind.Kind != "DeleteOptions":
		return nil, apierrors.NewBadRequest("no kind " + strconv.Quote(kind.Kind) + " is registered for version " +
			strconv.Quote(kind.GroupVersion().String()) + ` in scheme "pkg/runtime/scheme.go:111"`)
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.TypeMeta = metav1.TypeMeta{}
	return o, nil
}

func deleteParameters(v url.Values) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{DryRun: v["dryRun"]}
	if v.Has("gracePeriodSeconds") {
		seconds, err := strconv.ParseInt(v.Get("gracePeriodSeconds"), 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o.GracePeriodSeconds = &seconds
	}
	if v.Has("orphanDependents") {
		orphan := boolean(v, "orphanDependents")
		//lint:ignore SA1019 it is still sent
		o.OrphanDependents = &orphan
	}
	if v.Has("ignoreStoreReadErrorWithClusterBreakingPotential") {
		ignore := boolean(v, "ignoreStoreReadErrorWithClusterBreakingPotential")
		o.IgnoreStoreReadErrorWithClusterBreakingPotential = &ignore
	}
	if v.Has("propagationPolicy") {
		policy := metav1.DeletionPropagation(v.Get("propagationPolicy"))
		o.PropagationPolicy = &policy
	}
	return o, nil
}

const (
	inputText = "the body of the request was in an unknown format - accepted media types include: "
	patchText = "415: Unsupported Media Type"
)

// inputType returns the media type of the request's body.
func (q *request) inputType() (wire.MediaType, error) {
	sent := q.contentType()
	if m, ok := q.h.c.Media.Input(sent); ok {
		return m, nil
	}
	if name, _, err := mime.ParseMediaType(sent); err == nil {
		if m, ok := q.h.c.Media.Input(name); ok {
			return m, nil
		}
	}
	return "", errUnsupportedMediaType(inputText+q.h.c.Media.InputTypes(), nil)
}

// bodyType returns the media type of an object in the request's body. The kind has to
// support it.
func (q *request) bodyType() (wire.MediaType, error) {
	media, err := q.inputType()
	if err == nil && media == wire.Protobuf && q.target().Exchanged().Custom != nil {
		return "", errUnsupportedMediaType(inputText+q.h.c.Media.InputTypes(), nil)
	}
	return media, err
}

// contentType returns the media type of the body with its parameters, as it was sent; empty: none.
func (q *request) contentType() string {
	lines := q.r.Header["Content-Type"]
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// isApply reports whether a patch is an applied configuration, whatever it is for.
func (q *request) isApply() bool {
	p, ok := q.h.c.Media.Patch(q.patchMedium())
	return ok && wire.AppliedMedium(p) != ""
}

// patchMedium returns the media type of a patch. As in kube-apiserver, it ends at the first
// semicolon that is not its first byte. The rest is not parsed, and spaces are not cut off.
func (q *request) patchMedium() string {
	name := q.contentType()
	if i := strings.IndexByte(name, ';'); i > 0 {
		return name[:i]
	}
	return name
}

// patchType returns the type of a patch, by the media type of its body. The kind has to
// support it. The messages are those of kube-apiserver.
func (q *request) patchType() (types.PatchType, error) {
	name := q.patchMedium()
	p, ok := q.h.c.Media.Patch(name)
	custom := q.typ.Custom != nil
	if ok && !(custom && p == types.StrategicMergePatchType) {
		return p, nil
	}
	// The routes of built-in kinds cut spaces off, and refuse types that are still unknown on their
	// own.
	if _, routed := q.h.c.Media.Patch(strings.TrimSpace(name)); !routed && !custom {
		return "", errUnsupportedMediaType(patchText, &metav1.StatusDetails{})
	}
	all := []string{inputText + string(types.JSONPatchType), string(types.MergePatchType)}
	if !custom {
		all = append(all, string(types.StrategicMergePatchType))
	}
	return "", errUnsupportedMediaType(strings.Join(append(all, q.h.c.Media.ConfigurationTypes()), ", "), nil)
}
