package audit

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// reference returns the event as a value of the library.
func reference(e *Event, stage Stage, at time.Time) *auditv1.Event {
	user := func(u *authn.User) *authenticationv1.UserInfo {
		if u == nil {
			return nil
		}
		info := u.Info()
		return &info
	}
	r := &auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"},
		Level:    auditv1.Level(e.Level.String()), AuditID: types.UID(e.AuditID), Stage: auditv1.Stage(stage.String()),
		RequestURI: e.RequestURI, Verb: e.Verb, ImpersonatedUser: user(e.Impersonated), SourceIPs: e.SourceIPs, UserAgent: e.UserAgent,
		RequestReceivedTimestamp: metav1.NewMicroTime(e.Received), StageTimestamp: metav1.NewMicroTime(at),
	}
	if u := user(e.User); u != nil {
		r.User = *u
	}
	if e.Constraint != "" {
		r.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: e.Constraint}
	}
	if o := e.Object; o != nil {
		r.ObjectRef = &auditv1.ObjectReference{
			Resource: o.Resource, Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID), APIGroup: o.APIGroup,
			APIVersion: o.APIVersion, ResourceVersion: o.ResourceVersion, Subresource: o.Subresource,
		}
	}
	if s := e.Status; s != nil {
		r.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
	}
	raw := func(b []byte) *runtime.Unknown {
		if b == nil {
			return nil
		}
		return &runtime.Unknown{Raw: b, ContentType: runtime.ContentTypeJSON}
	}
	r.RequestObject, r.ResponseObject = raw(e.RequestObject), raw(e.ResponseObject)
	for _, a := range e.Annotations {
		if r.Annotations == nil {
			r.Annotations = map[string]string{}
		}
		r.Annotations[a.Key] = a.Value
	}
	return r
}

// checkEncoding compares the encoder with encoding/json.
func checkEncoding(t *testing.T, e *Event, stage Stage, at time.Time) {
	t.Helper()
	want, err := json.Marshal(reference(e, stage, at))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSuffix(string(e.append(nil, stage, at, false)), "\n"); got != string(want) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// randomEvents makes random events with strings that are hard to encode.
type randomEvents struct{ *rand.Rand }

var pieces = []string{"", "a", "system:masters", "\"", "\\", "<&>", "\x00", "\x1f\x7f", "\b\f\n\r\t", "\u2028\u2029", "é日本\U0001f600", "\xff\xfe", "\xe2\x80", "/api/v1/namespaces/x?a=b"}

func (r randomEvents) text() (s string) {
	for range r.IntN(4) {
		s += pieces[r.IntN(len(pieces))]
	}
	return s
}

func (r randomEvents) texts() (all []string) {
	for range r.IntN(4) {
		all = append(all, r.text())
	}
	return all
}

func (r randomEvents) user() *authn.User {
	if r.IntN(4) == 0 {
		return nil
	}
	u := &authn.User{Name: r.text(), UID: r.text(), Groups: r.texts()}
	for range r.IntN(3) {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[strings.ToValidUTF8(r.text(), "")] = r.texts()
	}
	return u
}

func (r randomEvents) object() []byte {
	if r.IntN(2) == 0 {
		return nil
	}
	b, err := json.MarshalIndent(map[string]any{"a": r.text(), "b": []any{r.text(), 1.5, nil, true}}, "", "\t")
	if err != nil {
		panic(err)
	}
	if r.IntN(2) == 0 {
		b = []byte(strings.NewReplacer(`\u003c`, "<", `\u0026`, "&", `\u2028`, "\u2028").Replace(string(b)))
	}
	return b
}

func (r randomEvents) event() *Event {
	e := &Event{
		Decision: Decision{Level: Level(r.IntN(len(levelNames)))}, AuditID: r.text(), RequestURI: r.text(), Verb: r.text(),
		User: r.user(), Impersonated: r.user(), Constraint: r.text(), SourceIPs: r.texts(), UserAgent: r.text(),
		RequestObject: r.object(), ResponseObject: r.object(), Received: time.Unix(r.Int64N(1<<34), r.Int64N(1e9)),
	}
	if r.IntN(2) == 0 {
		e.Object = &ObjectRef{r.text(), r.text(), r.text(), r.text(), r.text(), r.text(), r.text(), r.text()}
	}
	if r.IntN(2) == 0 {
		e.Status = &metav1.Status{Status: r.text(), Message: r.text(), Reason: metav1.StatusReason(r.text()), Code: int32(r.IntN(600))}
	}
	if e.Status != nil && r.IntN(2) == 0 {
		e.Status.Details = &metav1.StatusDetails{Name: r.text(), Group: r.text(), Kind: r.text(), UID: types.UID(r.text()), RetryAfterSeconds: int32(r.IntN(2))}
		for range r.IntN(3) {
			e.Status.Details.Causes = append(e.Status.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(r.text()), Message: r.text(), Field: r.text()})
		}
	}
	for range r.IntN(4) {
		e.Annotations.Set(strings.ToValidUTF8(r.text(), ""), r.text())
	}
	return e
}

// TestEncoding compares random events with encoding/json.
func TestEncoding(t *testing.T) {
	r := randomEvents{testrand.New(t)}
	for range 20_000 {
		checkEncoding(t, r.event(), Stage(r.IntN(len(stageNames))), time.Unix(r.Int64N(1<<34), r.Int64N(1e9)))
	}
}

// FuzzEncoding compares strings with encoding/json.
func FuzzEncoding(f *testing.F) {
	for _, p := range pieces {
		f.Add(p, `{"a": "<&>"}`)
	}
	f.Fuzz(func(t *testing.T, text, object string) {
		e := &Event{AuditID: text, UserAgent: text, User: &authn.User{Name: text, Groups: []string{text}}, Received: time.Unix(1, 0)}
		if json.Valid([]byte(object)) {
			e.RequestObject = []byte(object)
		}
		checkEncoding(t, e, Panic, time.Unix(2, 0))
	})
}

// TestEncodingInvalidObject: an object that is no JSON does not lose the event.
func TestEncodingInvalidObject(t *testing.T) {
	e := &Event{RequestObject: []byte("[{\"op\":\n"), Annotations: Annotations{{"k", "v"}}}
	var got struct{ RequestObject any }
	if err := json.Unmarshal(e.append(nil, ResponseComplete, time.Unix(1, 0), false), &got); err != nil || got.RequestObject != "[{\"op\":\n" {
		t.Errorf("%q, %v", got.RequestObject, err)
	}
}
