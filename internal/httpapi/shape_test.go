package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

const (
	secrets   = "/api/v1/namespaces/default/secrets"
	asTable   = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1"
	asPartial = "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asList    = "Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asMessage = "Accept: application/vnd.kubernetes.protobuf"
)

func (s *server) secret(t testing.TB, name string, size int) {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"n":%q}},"stringData":{"k":%q}}`, name, name, strings.Repeat("x", size))
	if a := s.do(t, "POST", secrets, body); a.code != http.StatusCreated {
		t.Fatalf("create %s: %d %s", name, a.code, a.body)
	}
}

// message opens an envelope and decodes its content.
func message(t testing.TB, body string, into interface {
	runtime.Object
	Unmarshal([]byte) error
}) (kind string) {
	t.Helper()
	e, err := wire.OpenEnvelope([]byte(body))
	if err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	if err := into.Unmarshal(e.Raw); err != nil {
		t.Fatal(err)
	}
	return e.APIVersion + " " + e.Kind
}

func parse[T any](t testing.TB, body string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

// TestTable: a list and an object as tables, with the objects, the metadata or nothing in the rows.
func TestTable(t *testing.T) {
	s := start(t, wiring{})
	s.secret(t, "a", 1)
	s.secret(t, "b", 1)
	list := parse[metav1.Table](t, s.do(t, "GET", secrets, "", asTable).body)
	if len(list.ColumnDefinitions) != 4 || len(list.Rows) != 2 || list.ResourceVersion == "" || list.Kind != "Table" || list.APIVersion != "meta.k8s.io/v1" {
		t.Errorf("%+v", list)
	}
	if got := fmt.Sprint(list.Rows[1].Cells[:3]); got != "[b Opaque 1]" {
		t.Errorf("the second row is %s", got)
	}
	page := parse[metav1.Table](t, s.do(t, "GET", secrets+"?limit=1", "", asTable).body)
	if len(page.Rows) != 1 || page.Continue == "" || page.RemainingItemCount == nil || *page.RemainingItemCount != 1 {
		t.Errorf("a page: %+v", page.ListMeta)
	}
	for query, want := range map[string]string{
		"":                        "PartialObjectMetadata",
		"?includeObject=Metadata": "PartialObjectMetadata",
		"?includeObject=Object":   "Secret",
		"?includeObject=None":     "",
	} {
		one := s.do(t, "GET", secrets+"/a"+query, "", asTable)
		table := parse[metav1.Table](t, one.body)
		object := parse[*struct {
			Kind     string
			Metadata metav1.ObjectMeta
		}](t, string(table.Rows[0].Object.Raw)+map[bool]string{true: "null"}[len(table.Rows[0].Object.Raw) == 0])
		switch {
		case object == nil && want != "" || object != nil && (object.Kind != want || object.Metadata.Name != "a" || object.Metadata.Labels["n"] != "a"):
			t.Errorf("%q: the row carries %s, want a %q", query, table.Rows[0].Object.Raw, want)
		case object != nil && object.Metadata.ResourceVersion != table.ResourceVersion:
			t.Errorf("%q: the table is of version %s, the object of %s", query, table.ResourceVersion, object.Metadata.ResourceVersion)
		}
	}
	bad := s.do(t, "GET", secrets+"?includeObject=Foo", "", asTable)
	if code, _, text := bad.status(t); code != 400 || !strings.Contains(text, `Unable to convert to Table as requested: includeObject: Invalid value: "Foo"`) {
		t.Errorf("%d %s", code, text)
	}
	made := parse[metav1.Table](t, s.do(t, "POST", secrets, `{"metadata":{"name":"c"}}`, asTable).body)
	if len(made.Rows) != 1 || made.Rows[0].Cells[0] != "c" {
		t.Errorf("a create: %+v", made)
	}
	if a := s.do(t, "GET", secrets+"/none", "", asTable); a.code != 404 {
		t.Errorf("a missing object: %d", a.code)
	}
}

// TestTextForms: YAML and indented JSON are the same as JSON, for every form.
func TestTextForms(t *testing.T) {
	now := time.Now()
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Now = func() time.Time { return now } }})
	for i := range 3 {
		s.secret(t, fmt.Sprint("s", i), 10)
	}
	for _, path := range []string{secrets, secrets + "?limit=2", "/api/v1/namespaces/default/limitranges", "/apis/autoscaling/v1/horizontalpodautoscalers", secrets + "/s1"} {
		forms := []string{"", ";as=Table;g=meta.k8s.io;v=v1", ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"}
		if strings.HasSuffix(path, "s1") {
			forms[2] = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"
		}
		for _, form := range forms {
			plain := s.do(t, "GET", path, "", "Accept: application/json"+form)
			want := parse[any](t, plain.body)
			indented := s.do(t, "GET", path+map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]+"pretty=1", "", "Accept: application/json"+form)
			var buffer bytes.Buffer
			if err := json.Indent(&buffer, []byte(plain.body), "", "  "); err != nil || strings.TrimSpace(buffer.String()) != strings.TrimSpace(indented.body) {
				t.Errorf("%s%s, indented (-got +want): %v\n%s", path, form, err, cmp.Diff(indented.body, buffer.String()))
			}
			text := s.do(t, "GET", path, "", "Accept: application/yaml"+form)
			var got any
			if err := yaml.Unmarshal([]byte(text.body), &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s%s, YAML (-got +want): %v\n%s", path, form, err, cmp.Diff(got, want))
			}
			if whole, err := yaml.JSONToYAML([]byte(plain.body)); err != nil || string(whole) != text.body {
				t.Errorf("%s%s, YAML as it is usually written (-got +want): %v\n%s", path, form, err, cmp.Diff(text.body, string(whole)))
			}
		}
	}
}

// TestWrongForms: an object is no list, and a list no object.
func TestWrongForms(t *testing.T) {
	s := start(t, wiring{})
	s.secret(t, "a", 1)
	for _, tt := range []struct{ path, accept, want string }{
		{secrets, asPartial, "you requested PartialObjectMetadata, but the requested object is a list (*core.SecretList)"},
		{secrets + "/a", asList, "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Secret)"},
		{"/apis/events.k8s.io/v1/events", asPartial, "you requested PartialObjectMetadata, but the requested object is a list (*core.EventList)"},
		{"/apis/rbac.authorization.k8s.io/v1/roles", asPartial, "you requested PartialObjectMetadata, but the requested object is a list (*rbac.RoleList)"},
		{secrets, asMessage + ";as=Table;g=meta.k8s.io;v=v1", "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"/version", "Accept: text/html", "406: Not Acceptable\n\nAvailable representations: application/json"},
	} {
		a := s.do(t, "GET", tt.path, "", tt.accept)
		if code, reason, text := a.status(t); code != 406 || reason != "NotAcceptable" || text != tt.want {
			t.Errorf("%s, %s: %d %s %q, want %q", tt.path, tt.accept, code, reason, text, tt.want)
		}
	}
}

// TestMessages: objects, lists, errors and documents in protobuf.
func TestMessages(t *testing.T) {
	s := start(t, wiring{})
	s.secret(t, "a", 1)
	var secret corev1.Secret
	if kind := message(t, s.do(t, "GET", secrets+"/a", "", asMessage).body, &secret); kind != "v1 Secret" || secret.Name != "a" || string(secret.Data["k"]) != "x" {
		t.Errorf("%s %+v", kind, secret)
	}
	var partial metav1.PartialObjectMetadata
	a := s.do(t, "GET", secrets+"/a", "", asMessage+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	if kind := message(t, a.body, &partial); kind != "meta.k8s.io/v1 PartialObjectMetadata" || partial.Name != "a" || partial.Labels["n"] != "a" {
		t.Errorf("%s %+v", kind, partial)
	}
	var list corev1.SecretList
	if kind := message(t, s.do(t, "GET", secrets+"?limit=1", "", asMessage).body, &list); kind != "v1 SecretList" || len(list.Items) != 1 || list.ResourceVersion == "" {
		t.Errorf("%s %+v", kind, list)
	}
	var status metav1.Status
	a = s.do(t, "GET", secrets+"/none", "", asMessage)
	if kind := message(t, a.body, &status); kind != "v1 Status" || status.Code != 404 || a.header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("%s %+v", kind, status)
	}
	var resources metav1.APIResourceList
	if kind := message(t, s.do(t, "GET", "/apis/apps/v1", "", asMessage).body, &resources); kind != "v1 APIResourceList" || resources.GroupVersion != "apps/v1" {
		t.Errorf("%s %+v", kind, resources)
	}
	var groups metav1.APIGroupList
	if kind := message(t, s.do(t, "GET", "/apis", "", asMessage).body, &groups); kind != "v1 APIGroupList" || len(groups.Groups) < 10 {
		t.Errorf("%s %+v", kind, groups)
	}
	// A dry-run returns an object that is not stored.
	a = s.do(t, "PATCH", secrets+"/a?dryRun=All", `{"data":{"k":"eQ=="}}`, asMessage, "Content-Type: application/merge-patch+json")
	if message(t, a.body, &secret); string(secret.Data["k"]) != "y" {
		t.Errorf("a dry-run: %d, %s", a.code, secret.Data["k"])
	}
	if message(t, s.do(t, "GET", secrets+"/a", "", asMessage).body, &secret); string(secret.Data["k"]) != "x" {
		t.Errorf("after a dry-run: %s", secret.Data["k"])
	}
}

// lists are the forms of a list that are put together in different ways.
var lists = []string{asTable, asTable + "beta1", asList, asMessage, asMessage + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	asCBOR, asCBOR + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "Accept: application/json"}

// TestListForms: however long a list is, whatever was kept of its objects before,
// compressed or not, it has the same objects in each form, under changes; with a
// budget for everything and one for nothing.
func TestListForms(t *testing.T) {
	for _, budget := range []int64{0, 1, 40_000} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			rng := testrand.New(t)
			now := time.Now().Add(24 * time.Hour)
			s := start(t, wiring{config: func(c *httpapi.Config) {
				withCBOR(c)
				c.RepresentationBytes = 2 * budget
				c.Limits.CompressAbove, c.Limits.WriteBatchBytes = smallList, 3000
				c.Now = func() time.Time { return now }
			}})
			for range 6 {
				for range 1 + rng.IntN(60) {
					name := fmt.Sprintf("c%d", rng.IntN(300))
					if rng.IntN(5) == 0 {
						s.do(t, "DELETE", maps+"/"+name, "")
						continue
					}
					s.put(t, "default", name, strings.Repeat("v", rng.IntN(200)))
				}
				for _, path := range []string{maps, maps + "?fieldSelector=metadata.name!=c1", maps + "?limit=70"} {
					want := names(t, "Accept: application/json", s.do(t, "GET", path, "", "Accept-Encoding: identity").body)
					for _, accept := range lists {
						plain := s.do(t, "GET", path, "", accept, "Accept-Encoding: identity")
						zipped := s.do(t, "GET", path, "", accept, "Accept-Encoding: gzip")
						text := unzip(t, zipped)
						if path == maps+"?limit=70" { // the token may differ
							text = plain.body
						}
						if got := names(t, accept, plain.body); got != want || text != plain.body || plain.code != 200 {
							t.Fatalf("%s, %s: %d\n%s, want\n%s; compressed the same: %t", path, accept, plain.code, got, want, text == plain.body)
						}
					}
				}
				now = now.Add(time.Duration(rng.IntN(3)) * 30 * time.Minute)
			}
		})
	}
}

func unzip(t testing.TB, a response) string {
	t.Helper()
	if a.header.Get("Content-Encoding") == "" {
		return a.body
	}
	z, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// names are the objects of a list with their versions, and the version of the list.
func names(t testing.TB, accept, body string) string {
	t.Helper()
	var metas []metav1.ObjectMeta
	version := ""
	switch {
	case strings.HasPrefix(accept, asTable):
		table := parse[metav1.Table](t, body)
		version = table.ResourceVersion
		for _, row := range table.Rows {
			m := parse[metav1.PartialObjectMetadata](t, string(row.Object.Raw))
			metas = append(metas, m.ObjectMeta)
			if row.Cells[0] != m.Name || len(row.Cells) != len(table.ColumnDefinitions) {
				t.Errorf("the row of %s has the cells %v", m.Name, row.Cells)
			}
		}
	case accept == asMessage:
		var list corev1.ConfigMapList
		message(t, body, &list)
		version = list.ResourceVersion
		for _, o := range list.Items {
			metas = append(metas, o.ObjectMeta)
		}
	case strings.HasPrefix(accept, asMessage):
		var list metav1.PartialObjectMetadataList
		message(t, body, &list)
		version = list.ResourceVersion
		for _, o := range list.Items {
			metas = append(metas, o.ObjectMeta)
		}
	case strings.HasPrefix(accept, asCBOR):
		var list corev1.ConfigMapList
		if accept == asCBOR {
			unpack(t, body, &list)
		} else {
			var partial metav1.PartialObjectMetadataList
			unpack(t, body, &partial)
			list.ListMeta = partial.ListMeta
			for _, o := range partial.Items {
				list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: o.ObjectMeta})
			}
		}
		version = list.ResourceVersion
		for _, o := range list.Items {
			metas = append(metas, o.ObjectMeta)
		}
	default:
		list := parse[metav1.PartialObjectMetadataList](t, body)
		version = list.ResourceVersion
		for _, o := range list.Items {
			metas = append(metas, o.ObjectMeta)
		}
	}
	text := version
	for _, m := range metas {
		text += " " + m.Name + "@" + m.ResourceVersion + "/" + string(m.UID) + m.CreationTimestamp.UTC().String()
	}
	return text
}

// TestManyForms: many clients ask for the same objects in all forms while they change.
func TestManyForms(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) {
		withCBOR(c)
		c.RepresentationBytes = 60_000
		c.Limits.CompressAbove, c.Limits.WriteBatchBytes = smallList, 3000
	}})
	for i := range 100 {
		s.put(t, "default", fmt.Sprintf("c%d", i), strings.Repeat("v", i))
	}
	var clients sync.WaitGroup
	for c := range 6 {
		clients.Go(func() {
			for i := range 20 {
				accept := lists[(c+i)%len(lists)]
				a := s.do(t, "GET", maps, "", accept, "Accept-Encoding: "+[]string{"gzip", "identity"}[i%2])
				names(t, accept, unzip(t, a))
				s.do(t, "PATCH", fmt.Sprintf("%s/c%d", maps, (c*20+i)%100), fmt.Sprintf(`{"data":{"x":"%d %d"}}`, c, i), "Content-Type: application/merge-patch+json")
			}
		})
	}
	clients.Wait()
}

// TestTableOfFlowSchemas: they stand in the order in which they count.
func TestTableOfFlowSchemas(t *testing.T) {
	s := start(t, wiring{})
	for i, precedence := range []int{700, 30, 500} {
		body, err := json.Marshal(flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("f", i)}, Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "exempt"}, MatchingPrecedence: int32(precedence)}})
		if err != nil {
			t.Fatal(err)
		}
		if a := s.do(t, "POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", string(body)); a.code != 201 {
			t.Fatal(a.body)
		}
	}
	var got []string
	for _, row := range parse[metav1.Table](t, s.do(t, "GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "", asTable).body).Rows {
		got = append(got, row.Cells[0].(string))
	}
	if want := []string{"f1", "f2", "f0"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTableOfScale: a subresource has the table of the kind that it returns.
func TestTableOfScale(t *testing.T) {
	s := start(t, wiring{})
	s.do(t, "POST", "/apis/apps/v1/namespaces/default/deployments",
		`{"metadata":{"name":"d"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	table := parse[metav1.Table](t, s.do(t, "GET", "/apis/apps/v1/namespaces/default/deployments/d/scale", "", asTable).body)
	if len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells[:3]) != "[d 2 0]" || table.ResourceVersion == "" {
		t.Errorf("%+v", table)
	}
	a := s.do(t, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`, asTable)
	if code, _, text := a.status(t); code != 406 || !strings.HasPrefix(text, "only the following") {
		t.Errorf("a review as a table: %d %s", code, text)
	}
}

// event is one of a watch as a table or as partial objects.
type event struct {
	Type   string
	Object struct {
		metav1.TypeMeta   `json:",inline"`
		Metadata          metav1.ObjectMeta
		ColumnDefinitions []metav1.TableColumnDefinition
		Rows              []metav1.TableRow
	}
}

func (w *watchReader) event(t testing.TB) event {
	t.Helper()
	line, err := w.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("a watch broke off: %v, %q", err, line)
	}
	return parse[event](t, line)
}

// TestWatchTable: columns come with the first event alone, bookmarks are rows.
func TestWatchTable(t *testing.T) {
	t.Parallel() // waits for a revision that does not come
	s := start(t, wiring{})
	s.secret(t, "a", 1)
	w := s.watch(t, secrets+"?watch=1&allowWatchBookmarks=1&includeObject=None", asTable)
	first := w.event(t)
	if first.Type != "ADDED" || len(first.Object.ColumnDefinitions) != 4 || first.Object.Rows[0].Cells[0] != "a" || len(first.Object.Rows[0].Object.Raw) > 0 {
		t.Errorf("%+v", first)
	}
	mark := w.event(t)
	object := parse[metav1.PartialObjectMetadata](t, string(mark.Object.Rows[0].Object.Raw))
	if mark.Type != "BOOKMARK" || mark.Object.ColumnDefinitions != nil || object.Annotations["k8s.io/initial-events-end"] != "true" || object.ResourceVersion == "" {
		t.Errorf("%+v, %s", mark, mark.Object.Rows[0].Object.Raw)
	}
	s.secret(t, "b", 1)
	if second := w.event(t); second.Object.ColumnDefinitions != nil || second.Object.Rows[0].Cells[0] != "b" || second.Object.Kind != "Table" {
		t.Errorf("%+v", second)
	}
	if a := s.do(t, "GET", secrets+"?watch=1&includeObject=Foo", "", asTable); a.code != 400 {
		t.Errorf("a bad parameter: %d %s", a.code, a.body)
	}
	if a := s.do(t, "GET", secrets+"?watch=1&resourceVersion=99999999999999999&resourceVersionMatch=NotOlderThan&sendInitialEvents=true", "", asTable); parse[event](t, a.body).Object.Kind != "Status" {
		t.Errorf("an error is not a Status: %s", a.body)
	}
}

func TestWatchPartial(t *testing.T) {
	s := start(t, wiring{})
	s.secret(t, "a", 1)
	w := s.watch(t, secrets+"?watch=1", asPartial)
	if e := w.event(t); e.Type != "ADDED" || e.Object.Kind != "PartialObjectMetadata" || e.Object.Metadata.Name != "a" || e.Object.Metadata.Labels["n"] != "a" {
		t.Errorf("%+v", e)
	}
	if a := s.do(t, "GET", secrets+"?watch=1", "", asList); a.code != 200 || a.body != "" { // no event is a list
		t.Errorf("%d %q", a.code, a.body)
	}
}

// frame reads an event in protobuf.
func frame(t testing.TB, r io.Reader) (kind string, object []byte) {
	t.Helper()
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return watchEvent(t, b)
}

func watchEvent(t testing.TB, b []byte) (kind string, object []byte) {
	t.Helper()
	var e metav1.WatchEvent
	if err := e.Unmarshal(b); err != nil {
		t.Fatal(err)
	}
	return e.Type, e.Object.Raw
}

func TestWatchMessages(t *testing.T) {
	t.Parallel() // waits for a revision that does not come
	s := start(t, wiring{})
	s.secret(t, "a", 1)
	w := s.watch(t, secrets+"?watch=1&allowWatchBookmarks=1", asMessage)
	if got := w.resp.Header.Get("Content-Type"); got != "application/vnd.kubernetes.protobuf;stream=watch" {
		t.Errorf("Content-Type: %s", got)
	}
	var o corev1.Secret
	kind, raw := frame(t, w.lines)
	if is := message(t, string(raw), &o); kind != "ADDED" || is != "v1 Secret" || o.Name != "a" || string(o.Data["k"]) != "x" {
		t.Errorf("%s %s %+v", kind, is, o)
	}
	var mark corev1.Secret
	kind, raw = frame(t, w.lines)
	if is := message(t, string(raw), &mark); kind != "BOOKMARK" || is != "v1 Secret" || mark.ResourceVersion == "" || mark.Annotations["k8s.io/initial-events-end"] != "true" {
		t.Errorf("%s %s %+v", kind, is, mark)
	}
	a := s.do(t, "GET", secrets+"?watch=1&resourceVersion=99999999999999999&resourceVersionMatch=NotOlderThan&sendInitialEvents=true", "", asMessage)
	var status metav1.Status
	kind, raw = frame(t, strings.NewReader(a.body))
	if is := message(t, string(raw), &status); kind != "ERROR" || is != "v1 Status" || status.Code != 504 {
		t.Errorf("%s %s %+v", kind, is, status)
	}
	p := s.watch(t, secrets+"?watch=1", asMessage+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	var partial metav1.PartialObjectMetadata
	kind, raw = frame(t, p.lines)
	if is := message(t, string(raw), &partial); kind != "ADDED" || is != "meta.k8s.io/v1 PartialObjectMetadata" || partial.Name != "a" {
		t.Errorf("%s %s %+v", kind, is, partial)
	}
}

// TestWatchMessagesOverWebSocket: one event is one binary message.
func TestWatchMessagesOverWebSocket(t *testing.T) {
	s := start(t, wiring{http1: true})
	s.secret(t, "a", 1)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme = "wss"
	conn, _, err := websocket.Dial(t.Context(), u.String()+secrets+"?watch=1", &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: http.Header{
		"Authorization": {"Bearer admin"}, "Accept": {"application/vnd.kubernetes.protobuf"}, "User-Agent": {"test"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	form, b, err := conn.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var o corev1.Secret
	kind, raw := watchEvent(t, b)
	if message(t, string(raw), &o); kind != "ADDED" || form != websocket.MessageBinary || o.Name != "a" {
		t.Errorf("%v %s %+v", form, kind, o)
	}
}
