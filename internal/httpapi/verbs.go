package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// resource serves a path below a group and version.
func (q *request) resource() error {
	if q.typ == nil && q.instant == nil {
		if err := q.decide(func() bool { q.lookup(); return q.typ != nil }); err != nil {
			return registry.ReadStatus(err)
		}
	}
	if q.typ == nil {
		if q.info.Group != "" && !q.types().Serves(q.info.Group) {
			return errNoPage
		}
		return errNoResource()
	}
	if refused := allow(q.typ, &q.info, q.r.Method); refused != routed {
		return q.unrouted(refused)
	}
	if q.typ.Deprecated != "" {
		if q.audited != nil {
			q.audited.deprecated = true
		}
		q.header()["Warning"] = warningHeaders([]string{q.typ.Deprecated})
		q.h.metrics.usesDeprecated(q)
	}
	if s := q.typ.Subresource(q.info.Subresource); s != nil && s.Connect != nil {
		if q.instant != nil {
			return errPast(s.Name)
		}
		q.errors = wire.Errors
		return q.connect(s)
	}
	if q.info.Verb == verbPatch {
		if _, err := q.patchType(); err != nil {
			return err
		}
	}
	out, err := q.h.c.Media.Negotiate(q.accept(), q.offer())
	if err != nil {
		return err
	}
	q.errors = wire.Errors
	if err := q.checkNames(); err != nil {
		return err
	}
	if !time.Now().Before(q.deadline) && !q.deadline.IsZero() {
		q.h.metrics.terminated(q)
		return errTimeout()
	}
	return q.do(out)
}

// unrouted returns the error for a path that the type does not serve, or not by the method.
func (q *request) unrouted(why routeError) error {
	switch t, p := q.typ, &q.info; {
	case t.Custom == nil && why == noRoute:
		return errNoResource()
	case t.Custom == nil:
		return errNoMethod()
	case why == noMethod:
		return apierrors.NewMethodNotSupported(t.GroupResource(), q.info.Verb)
	case p.Subresource != "" && p.inNamespace == t.Namespaced && !p.malformed:
		return apierrors.NewNotFound(t.GroupResource(), p.Name)
	}
	return errNoPage
}

// offer returns the representations that the response can have.
func (q *request) offer() wire.Offer {
	target := q.target()
	switch {
	case q.changes != nil && q.info.Verb == verbWatch:
		return wire.TreeStreams
	case q.changes != nil:
		return wire.Trees
	case q.typ.Custom != nil && q.info.Verb == verbWatch:
		return wire.TreeStreams
	case q.typ.Custom != nil:
		return wire.Trees
	case q.info.Verb == verbWatch:
		return wire.Streams
	case q.info.Verb == verbList:
		return wire.Lists
	case target.Exchanged().Display.Columns == nil, q.info.Verb == verbCreate && q.h.c.Registry.CreatesVirtual(target):
		return wire.Responses
	}
	return wire.Objects
}

// checkNames refuses names that cannot be a segment of a path.
func (q *request) checkNames() error {
	if fault := nameFault(q.info.Name); fault != "" {
		return apierrors.NewBadRequest(`Name parameter invalid: "` + q.info.Name + `": ` + fault)
	}
	if fault := nameFault(q.info.Namespace); fault != "" {
		return apierrors.NewBadRequest(`Namespace parameter invalid: "` + q.info.Namespace + `": ` + fault)
	}
	return nil
}

// do calls the verb.
func (q *request) do(out wire.Output) error {
	target := q.target()
	if q.info.Verb == verbCreate && q.h.c.Registry.CreatesVirtual(target) {
		return q.act(target, out)
	}
	if q.changes != nil {
		return q.serveChanges(out)
	}
	if err := q.unserved(target); err != nil {
		return err
	}
	switch q.info.Verb {
	case verbGet:
		return q.get(target, out)
	case verbList:
		return q.list(target, out)
	case verbWatch:
		return q.openWatch(target, out)
	case verbCreate, verbUpdate:
		return q.put(target, out)
	case verbPatch:
		return q.patch(target, out)
	case verbDelete:
		return q.delete(target, out)
	case verbDeleteCollection:
		return q.deleteCollection(target, out)
	}
	return errNoMethod()
}

func (q *request) target() registry.Target {
	t := registry.Target{Type: q.typ, Subresource: q.info.Subresource}
	if !q.info.collection {
		t.Name = q.info.Name
	}
	if q.typ.Namespaced {
		t.Namespace = q.info.Namespace
	}
	if q.instant != nil {
		t.At = q.instant.revision
	}
	if q.replica != nil && q.replica.behind(q.typ.Collection) {
		t.Replica = q.replica.reads
	}
	return t
}

// unserved refuses resources that discovery shows and that are not implemented. If the
// object does not exist, that is the error.
func (q *request) unserved(t registry.Target) error {
	switch {
	case q.h.c.Registry.ReadsVirtual(t):
		if q.instant != nil {
			return refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
				t.Type.Resource+" have no past: they show the present alone", &metav1.StatusDetails{})
		}
		if q.info.Verb == verbWatch {
			return apierrors.NewMethodNotSupported(t.Type.GroupResource(), verbWatch)
		}
	case t.Type.Collection == "":
		return registry.NotImplemented(t.Type.GroupResource().String())
	case t.Subresource != "" && t.Subresource != "status" && !t.Type.Subresource(t.Subresource).Written():
		ctx := q.context()
		if _, err := q.h.c.Registry.Get(ctx, registry.Target{Type: t.Type, Namespace: t.Namespace, Name: t.Name}, ""); err != nil {
			return err
		}
		return registry.NotImplemented("the subresource " + t.Subresource)
	}
	return nil
}

func (q *request) get(t registry.Target, out wire.Output) error {
	ctx, revision := q.r.Context(), ""
	if q.typ.ConvertsByWebhook() {
		ctx = q.context() // a webhook may be called
	}
	if q.r.URL.RawQuery != "" {
		v := q.query()
		if boolean(v, "export") {
			return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
		}
		if revision = v.Get("resourceVersion"); revision != "" {
			ctx = q.context() // it may wait for that version
		}
	}
	o, err := q.h.c.Registry.Get(ctx, t, revision)
	if err != nil {
		return err
	}
	return q.respond(&o, t, out)
}

func (q *request) put(t registry.Target, out wire.Output) error {
	media, err := q.bodyType()
	if err != nil {
		return err
	}
	body, err := q.body()
	if err != nil {
		return err
	}
	verb := q.h.c.Registry.Create
	if q.info.Verb == verbUpdate {
		verb = q.h.c.Registry.Update
	}
	o, err := verb(q.context(), t, registry.Body{Media: media, Bytes: body}, q.writeOptions())
	return q.written(&o, err, t, out)
}

func (q *request) patch(t registry.Target, out wire.Output) error {
	kind, err := q.patchType()
	if err != nil {
		return err
	}
	body, err := q.body()
	if err != nil {
		return err
	}
	q.audited.patches(body, wire.AppliedMedium(kind))
	o, err := q.h.c.Registry.Patch(q.context(), t, registry.Patch{Type: kind, Bytes: body}, q.writeOptions())
	return q.written(&o, err, t, out)
}

// warn sets the Warning headers. The warning of a deprecated kind comes first.
func (q *request) warn(t registry.Target, warnings []string) {
	if len(warnings) > 0 {
		q.header()["Warning"] = warningHeaders(append([]string{t.Type.Deprecated}, warnings...))
	}
}

// written responds to a write. Its warnings are sent with an error, too.
func (q *request) written(o *registry.Object, err error, t registry.Target, out wire.Output) error {
	q.warn(t, o.Warnings)
	q.audited.annotate(o.Annotations)
	if err != nil {
		return err
	}
	return q.respond(o, t, out)
}

// act responds to a POST of an object that is never stored: a review, a token, a binding, an
// eviction.
func (q *request) act(t registry.Target, out wire.Output) error {
	media, err := q.inputType()
	if err != nil {
		return err
	}
	body, err := q.body()
	if err != nil {
		return err
	}
	a, err := q.h.c.Registry.CreateVirtual(q.context(), t, registry.Body{Media: media, Bytes: body}, q.writeOptions())
	if len(a.Warnings) > 0 {
		q.header()["Warning"] = warningHeaders(append([]string{t.Type.Deprecated}, a.Warnings...))
	}
	q.audited.annotate(a.Annotations)
	if err != nil {
		return err
	}
	if a.Status != nil {
		q.audited.responds(a.Status)
		return q.json(http.StatusCreated, encodeStatus(a.Status), out)
	}
	return q.show(http.StatusCreated, t.Exchanged(), &store.Object{Held: a.Value}, out)
}

func (q *request) delete(t registry.Target, out wire.Output) error {
	options, err := q.deleteOptions()
	if err != nil {
		return err
	}
	if err := q.mayDeleteUnsafely(options); err != nil {
		return err
	}
	o, err := q.h.c.Registry.Delete(q.context(), t, options, q.info.User)
	return q.written(&o, err, t, out)
}

// mayDeleteUnsafely returns an error for a deletion of an object that cannot be read unless the user has the
// permission for that, too.
func (q *request) mayDeleteUnsafely(o *metav1.DeleteOptions) error {
	if !q.h.c.Registry.UnsafeDeletion || !registry.IgnoresReadErrors(o) {
		return nil
	}
	q.audited.annotate(map[string]string{"apiserver.k8s.io/unsafe-delete-ignore-read-error": ""})
	return q.alsoAllowed("unsafe-delete-ignore-read-errors")
}

// deleteCollection responds with the objects that it deleted.
func (q *request) deleteCollection(t registry.Target, out wire.Output) error {
	options, err := q.deleteOptions()
	if err != nil {
		return err
	}
	lo, err := q.listOptions()
	if err != nil {
		return err
	}
	l, err := q.h.c.Registry.DeleteCollection(q.seated(q.r.Context()), t, options, lo, q.info.User) // without a limit of time
	if l != nil {
		q.audited.annotate(l.Annotations)
	}
	if err != nil {
		return err
	}
	q.warn(t, l.Warnings)
	q.extend(q.h.c.Limits.RequestTimeout) // to write the response
	return q.writeList(l, out)
}

// respond writes the result of a verb.
func (q *request) respond(o *registry.Object, t registry.Target, out wire.Output) error {
	if o.Status != nil {
		q.audited.responds(o.Status)
		return q.json(http.StatusOK, encodeStatus(o.Status), out)
	}
	code := http.StatusOK
	switch {
	case o.Created:
		code = http.StatusCreated
	case o.Accepted:
		code = http.StatusAccepted
	}
	if typ := t.Exchanged(); typ != t.Type {
		of := resource.ForWrite
		if q.r.Method == http.MethodGet {
			of = resource.ForRead
		}
		value, err := t.Show(q.context(), o.Stored, of)
		if err != nil {
			return err
		}
		return q.show(code, typ, &store.Object{Held: value, Modified: o.Stored.Modified}, out)
	}
	return q.show(code, t.Type, o.Stored, out)
}

// show responds with one object.
func (q *request) show(code int, t *resource.Type, o *store.Object, out wire.Output) error {
	if out.Form == wire.Whole && out.Binary() == nil && !out.Unmanaged { // nearly always
		if t.Conversion == nil {
			return q.json(code, o.Bytes(), out)
		}
		f, err := q.h.cache.of(q.context(), t, o, converted)
		if err != nil {
			return err
		}
		return q.json(code, f.raw, out)
	}
	if out.Form == wire.PartialList {
		return notShown("you requested PartialObjectMetadataList, but the requested object is not a list " + goName(t, ""))
	}
	s, err := q.newShape(t, out)
	if err != nil {
		return err
	}
	body, err := s.object(nil, o)
	switch {
	case err != nil:
		return err
	case s.binary != nil:
		if err := q.auditBinary(t, o, out); err != nil {
			return err
		}
		return q.send(code, s.binary.ContentType, body)
	}
	return q.json(code, body, out)
}

// body reads the request's body, at most until the deadline.
func (q *request) body() ([]byte, error) { return q.bodyUpTo(q.h.c.Limits.BodyBytes) }

// bodyUpTo is body with another limit, in bytes.
func (q *request) bodyUpTo(limit int64) ([]byte, error) {
	length := q.r.ContentLength
	if length == 0 {
		q.received = 0
		return nil, nil
	}
	if length > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if q.timed {
		defer q.took(&q.parts.body, time.Now())
	}
	body, err := q.readBody(length, limit)
	var tooLarge *http.MaxBytesError
	var known apierrors.APIStatus
	switch {
	case err == nil:
		q.received = int64(len(body))
		return body, nil
	case errors.As(err, &tooLarge), errors.As(err, &known):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		// The rest of the body must not be taken for another request.
		q.header()["Connection"] = []string{"close"}
		q.h.metrics.terminated(q)
		return nil, errTimeout()
	}
	return nil, apierrors.NewBadRequest("reading the body of the request: " + err.Error())
}

// firstBodyBytes is the first buffer of a body, whatever its declared length. It doubles
// as the bytes arrive: a client holds no more memory than it has sent.
const firstBodyBytes = 8 << 10

// readBody reads a body of a length (-1: unknown). The request gives its seats back if the client is
// slow to send it. The bytes count in the budget for waiting requests.
func (q *request) readBody(length, limit int64) (body []byte, err error) {
	if q.seat == nil {
		return q.receive(length, limit)
	}
	if length < 0 || length > fairness.SeatBytes { // it may need more seats
		if !q.seat.Suspend(0) {
			return nil, errFull()
		}
		if body, err = q.receive(length, limit); err == nil {
			q.seat.Widen(1 + len(body)/fairness.SeatBytes)
			err = q.seat.Resume(q.context())
		}
		return body, err
	}
	full, client := false, http.NewResponseController(q.w)
	risen, err := q.late.watch(q.seat, false, func() {
		full = true
		_ = client.SetReadDeadline(time.Now())
	}, func() (err error) {
		body, err = q.receive(length, limit)
		return err
	})
	switch {
	case full && err != nil:
		return nil, errFull()
	case risen && err == nil:
		err = q.seat.Resume(q.context())
	}
	return body, err
}

// receive reads a body.
func (q *request) receive(length, limit int64) (body []byte, err error) {
	client := http.NewResponseController(q.w)
	_ = client.SetReadDeadline(q.deadline)
	from := q.r.Body
	if length < 0 {
		length, from = limit+1, http.MaxBytesReader(q.w, from, limit)
	}
	for more := min(length, firstBodyBytes); more > 0; more = min(int64(len(body)), length-int64(len(body))) {
		if err = q.hold(more); err != nil {
			break
		}
		read := len(body)
		body = append(make([]byte, 0, int64(read)+more), body...)
		n, failed := io.ReadFull(from, body[read:int64(read)+more])
		body = body[:read+n]
		if err = failed; err != nil {
			break
		}
	}
	if length > limit && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = nil // the end of a body of unknown length
	}
	if q.bodyRead = err == nil; q.bodyRead {
		_ = client.SetReadDeadline(time.Time{})
	}
	return body, err
}
