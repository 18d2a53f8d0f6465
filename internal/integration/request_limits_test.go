package integration_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

const mebibyte = 1 << 20

// nested returns a value of the given depth.
func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

// times returns n copies of a format with its number, separated by commas.
func times(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// wide is YAML whose aliases expand to twice the maximum size of a body.
var wide = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata:\n  k: &a " + strings.Repeat("x", 64<<10) + strings.ReplaceAll(times(96, "\n  k%d: *a"), ",", "")

// bomb is YAML whose aliases expand exponentially.
const bomb = `
kind: ConfigMap
apiVersion: v1
metadata: {name: a}
data:
  a: &a [x,x,x,x,x,x,x,x,x,x]
  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]
  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]
  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]
  e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]
  f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]
  g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]
  h: [*g,*g,*g,*g,*g,*g,*g,*g,*g,*g]
`

// squeezed returns the text compressed with gzip.
func squeezed(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

// A call is a request with a body.
type call struct{ method, url, media, body string }

// send sends the request, with a Content-Encoding if its body is compressed.
func (c call) send(t testing.TB, h *http.Client) *http.Response {
	t.Helper()
	req, err := http.NewRequest(c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", c.media)
	if strings.HasPrefix(c.body, "\x1f\x8b") {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestWriteLimits exceeds each limit of a write. The server must refuse it quickly
// with a Status that describes the limit, and write nothing. docs/limits.md lists the
// limits.
func TestWriteLimits(t *testing.T) {
	many := 20_000
	if tier.IsFull(t) {
		many *= 10 // as many as a body has room for
	}
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"*", "-root-ca-certificate-publisher"}})
	c := s.RESTConfig()
	h := servertest.Client(t, c)
	const a = configMaps + "/a"
	const yaml = "application/yaml"
	if code, text := send(t, h, "POST", c.Host+configMaps, `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", mebibyte)+`"}}`); code != 201 {
		t.Fatalf("%d %.300s", code, text)
	}
	// Characters that JSON writes as six bytes count as one: such an object can be created and
	// changed.
	const markup = configMaps + "/markup"
	for _, write := range []call{
		{"POST", configMaps, asJSON, `{"metadata":{"name":"markup"},"data":{"k":"` + strings.Repeat("<", mebibyte-1) + `"}}`},
		{"PATCH", markup, asMerge, `{"metadata":{"labels":{"a":"b"}}}`},
		{"PATCH", markup, asStrategic, `{"metadata":{"labels":{"a":"c"}}}`},
		{"PATCH", markup, asJSONPatch, `[{"op":"add","path":"/metadata/labels/a","value":"d"}]`},
		{"PATCH", markup + "?fieldManager=m", asApply, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"markup","labels":{"b":"c"}}}`},
	} {
		write.url = c.Host + write.url
		resp := write.send(t, h)
		if resp.Body.Close(); resp.StatusCode >= 300 {
			t.Errorf("%s %s of a megabyte of markup: %d", write.method, write.media, resp.StatusCode)
		}
	}
	big := strings.Repeat("x", 5*mebibyte/2)
	named := func(metadata string) string { return `{"metadata":{"name":"b",` + metadata + `}}` }
	rows := []struct {
		name, method, path, media, body string
		code                            int32
		message                         string
	}{
		{"a body", "POST", configMaps, asJSON, named(`"x":"` + strings.Repeat("x", 3*mebibyte) + `"`), 413, "Request entity too large: limit is 3145728"},
		{"a body of PUT", "PUT", a, asJSON, strings.Repeat(" ", 3*mebibyte+1), 413, "limit is 3145728"},
		{"a body of DELETE", "DELETE", a, asJSON, strings.Repeat(" ", 3*mebibyte+1), 413, "limit is 3145728"},
		{"a body of deletecollection", "DELETE", configMaps, asJSON, strings.Repeat(" ", 3*mebibyte+1), 413, "limit is 3145728"},
		{"a patch", "PATCH", a, asMerge, strings.Repeat(" ", 3*mebibyte+1), 413, "limit is 3145728"},
		{"an apply", "PATCH", a + "?fieldManager=m", asApply, strings.Repeat(" ", 3*mebibyte+1), 413, "limit is 3145728"},
		{"a compressed body", "POST", configMaps, asJSON, squeezed(named(`"labels":{"a":"b"}`)), 400, "the object provided is unrecognized"},

		{"depth", "POST", configMaps, asJSON, named(`"x":` + nested(600)), 400, "nests deeper than 512"},
		{"depth of YAML", "POST", configMaps, yaml, "metadata: {name: b}\nx: " + nested(600), 400, "nests deeper than 512"},
		{"depth of a merge patch", "PATCH", a, asMerge, `{"x":` + nested(600) + `}`, 400, "nests deeper than 512"},
		{"depth of a strategic patch", "PATCH", a, asStrategic, `{"x":` + nested(600) + `}`, 400, "nests deeper than 512"},
		{"depth of a JSON patch", "PATCH", a, asJSONPatch, `[{"op":"add","path":"/data/k","value":` + nested(600) + `}]`, 400, "nests deeper than 512"},
		{"depth of an apply", "PATCH", a + "?fieldManager=m", asApply, `{"x":` + nested(600) + `}`, 400, "nests deeper than 512"},
		{"depth of options", "DELETE", a, asJSON, `{"x":` + nested(600) + `}`, 400, "nests deeper than 512"},
		{"depth without an end", "POST", configMaps, asJSON, strings.Repeat("[", mebibyte), 400, "nests deeper than 512"},
		{"depth without an end in YAML", "POST", configMaps, yaml, strings.Repeat("[", mebibyte), 400, "the object provided is unrecognized"},

		{"aliases", "POST", configMaps, yaml, wide, 400, "aliases make it larger than 3145728 bytes"},
		{"aliases in PUT", "PUT", a, yaml, wide, 400, "aliases make it larger than 3145728 bytes"},
		{"aliases in an apply", "PATCH", a + "?fieldManager=m", asApply, wide, 400, "aliases make it larger than 3145728 bytes"},
		{"aliases in options", "DELETE", a, yaml, wide, 400, "aliases make it larger than 3145728 bytes"},
		{"aliases of aliases", "POST", configMaps, yaml, bomb, 400, "document contains excessive aliasing"},
		{"aliases of aliases in an apply", "PATCH", a + "?fieldManager=m", asApply, bomb, 400, "document contains excessive aliasing"},

		{"operations", "PATCH", a, asJSONPatch, "[" + times(10_001, `{"op":"add","path":"/data/k%d","value":""}`) + "]", 413, "The allowed maximum operations in a JSON patch is 10000, got 10001"},
		{"copies", "PATCH", a, asJSONPatch, "[" + times(4, `{"op":"copy","from":"/data/k","path":"/data/k%d"}`) + "]", 413, "Request entity too large"},
		{"what a JSON patch makes", "PATCH", a, asJSONPatch, `[{"op":"add","path":"/data/l","value":"` + big + `"}]`, 413, "3145728 bytes"},
		{"wrong keys", "POST", configMaps, asJSON, `{"metadata":{"name":"b"},"data":{` + times(many, `"!%d":""`) + `}}`, 422, fmt.Sprintf("and %d more errors", many-1000)},
		{"usages of a certificate", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", asJSON, `{"metadata":{"name":"b"},"spec":{"usages":[` + times(many, `"u%d"`) + `]}}`, 422, "more errors"},
		{"finalizers", "POST", configMaps, asJSON, named(`"finalizers":[` + times(100_000, `"f%d"`) + `]`), 422, "more errors"},
		{"what a merge patch makes", "PATCH", a, asMerge, `{"data":{"l":"` + big + `"}}`, 413, "3145728 bytes"},
		{"what a strategic patch makes", "PATCH", a, asStrategic, `{"data":{"l":"` + big + `"}}`, 413, "3145728 bytes"},
		{"what an apply makes", "PATCH", a + "?fieldManager=m", asApply, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"l":"` + big + `"}}`, 422, "may not be more than 1048576 bytes"}, // what the kind allows comes first

		{"a name", "POST", configMaps, asJSON, `{"metadata":{"name":"` + strings.Repeat("a", 254) + `"}}`, 422, "metadata.name: Invalid value"},
		{"a name in an apply", "PATCH", configMaps + "/" + strings.Repeat("a", 254) + "?fieldManager=m", asApply, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + strings.Repeat("a", 254) + `"}}`, 422, "metadata.name: Invalid value"},
		{"a generated name that cannot be", "POST", configMaps, asJSON, `{"metadata":{"generateName":"A_"}}`, 422, "metadata.generateName: Invalid value"},
		{"annotations", "POST", configMaps, asJSON, named(`"annotations":{"a":"` + strings.Repeat("x", 256<<10) + `"}`), 422, "metadata.annotations: Too long: may not be more than 262144 bytes"},
		{"annotations in a patch", "PATCH", a, asMerge, `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 256<<10) + `"}}}`, 422, "metadata.annotations: Too long: may not be more than 262144 bytes"},
		{"a label's name", "POST", configMaps, asJSON, named(`"labels":{"` + strings.Repeat("a", 64) + `":""}`), 422, "must be no more than 63"},
		{"a label's value", "POST", configMaps, asJSON, named(`"labels":{"a":"` + strings.Repeat("a", 64) + `"}`), 422, "must be no more than 63"},
		{"a finalizer", "POST", configMaps, asJSON, named(`"finalizers":["a.b/` + strings.Repeat("a", 64) + `"]`), 422, "metadata.finalizers"},
		{"an owner without a kind", "POST", configMaps, asJSON, named(`"ownerReferences":[{"apiVersion":"v1","name":"x","uid":"1"}]`), 422, "metadata.ownerReferences"},
		{"two controllers", "POST", configMaps, asJSON, named(`"ownerReferences":[` + times(2, `{"apiVersion":"v1","kind":"Secret","name":"x","uid":"%d","controller":true}`) + `]`), 422, "Only one reference can have Controller set to true"},
		{"a manager", "POST", configMaps + "?fieldManager=" + strings.Repeat("m", 129), asJSON, named(`"labels":{}`), 422, "fieldManager: Too long: may not be more than 128 bytes"},
		{"a manager of a patch", "PATCH", a + "?fieldManager=" + strings.Repeat("m", 129), asMerge, "{}", 422, "fieldManager: Too long: may not be more than 128 bytes"},
		{"a manager that cannot be printed", "PATCH", a + "?fieldManager=%07", asApply, "{}", 422, "fieldManager: Invalid value"},
		{"a manager in managed fields", "PUT", a, asJSON, fmt.Sprintf(`{"metadata":{"name":"a","managedFields":[{"manager":%q,"operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]}}`, strings.Repeat("m", 129)), 422, "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"},
		{"a subresource in managed fields", "PATCH", a, asMerge, fmt.Sprintf(`{"metadata":{"managedFields":[{"manager":"m","subresource":%q,"operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]}}`, strings.Repeat("m", 257)), 422, "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes"},
	}
	for _, row := range rows {
		before := revisionOf(t, h, c.Host)
		resp := call{row.method, c.Host + row.path, row.media, row.body}.send(t, h)
		var status metav1.Status
		err := json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil || status.Code != row.code || !strings.Contains(status.Message, row.message) {
			t.Errorf("%s: %d %.400q %v, want %d %q", row.name, status.Code, status.Message, err, row.code, row.message)
		}
		if after := revisionOf(t, h, c.Host); after != before {
			t.Errorf("%s: something was written", row.name)
		}
	}
}

// revisionOf returns the resourceVersion of the ConfigMaps.
func revisionOf(t *testing.T, h *http.Client, host string) string {
	t.Helper()
	resp, err := h.Get(host + configMaps + "?labelSelector=none")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var l metav1.PartialObjectMetadataList
	if err := json.NewDecoder(resp.Body).Decode(&l); err != nil {
		t.Fatal(err)
	}
	return l.ResourceVersion
}
