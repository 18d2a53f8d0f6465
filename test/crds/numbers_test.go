package crds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// numberTexts are numbers as clients may write them, and texts that are no numbers.
var numberTexts = []string{
	"0", "-0", "-0.0", "1.0", "1e0", "1e3", "1E+2", "10e-1", "12e-1", "1.5", "-1.5e-7", "2147483647", "2147483648", "-2147483649", "4294967296",
	"9007199254740992", "9007199254740993", "9007199254740993.0", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
	"18446744073709551615", "18446744073709551616", "1e18", "1e19", "1e21", "123456789012345678901234567890", "0.1", "3.141592653589793238", "3.5e38", "1e308", "1e400", "-1e400",
	"5e-324", "1e-400", "01", "+1", ".5", "1.", "1e", "0x10", "1_000", "NaN", ".inf", "Infinity", `"1"`, `"1e3"`, "true",
}

// numberSchema has numbers of each sort.
const numberSchema = `{"type":"object","properties":{"spec":{"type":"object","properties":{
	"integer":{"type":"integer"},"int32":{"type":"integer","format":"int32"},"int64":{"type":"integer","format":"int64"},
	"number":{"type":"number"},"float":{"type":"number","format":"float"},"double":{"type":"number","format":"double"},
	"mixed":{"x-kubernetes-int-or-string":true},"any":{"x-kubernetes-preserve-unknown-fields":true},"text":{"type":"string"},
	"some":{"type":"integer","enum":[0,1,1000]},"even":{"type":"number","multipleOf":0.5},"between":{"type":"number","minimum":-1,"maximum":1e18,"exclusiveMaximum":true},
	"set":{"type":"array","items":{"type":"integer"},"x-kubernetes-list-type":"set"},
	"keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"},"v":{"type":"number"}}}},
	"ruled":{"type":"integer","x-kubernetes-validations":[{"rule":"self < 5000"}]},
	"measured":{"type":"number","x-kubernetes-validations":[{"rule":"self < 5000.0"}]}}}}}`

// numberPlaces are the values to set, with a number at %s.
var numberPlaces = []string{
	`{"integer":%s}`, `{"int32":%s}`, `{"int64":%s}`, `{"number":%s}`, `{"float":%s}`, `{"double":%s}`, `{"mixed":%s}`, `{"any":%s}`, `{"any":{"a":[%s,{"b":%[1]s}]}}`, `{"text":%s}`,
	`{"some":%s}`, `{"even":%s}`, `{"between":%s}`, `{"set":[1,%s]}`, `{"keyed":[{"n":1,"v":2},{"n":%s,"v":2}]}`, `{"ruled":%s}`, `{"measured":%s}`,
}

// TestNumbersLikePeer writes numbers in unusual texts to each sort of field by each verb. Both servers must show the same
// text, or the same error.
func TestNumbersLikePeer(t *testing.T) {
	tier.Full(t)
	b := newBoth(t)
	plural := fmt.Sprintf("n%d", time.Now().UnixNano())
	d := parse(t, tree{"metadata": tree{"name": plural + "." + randomGroup}, "spec": tree{
		"group": randomGroup, "scope": "Namespaced", "names": tree{"plural": plural, "kind": "Kind" + plural},
		"versions": []any{tree{"name": "v1", "served": true, "storage": true, "schema": tree{"openAPIV3Schema": parsed(t, numberSchema)}}},
	}})
	if !b.define(t, d) {
		t.Fatal("the definition is refused")
	}
	at := d.collection(d.versions[0], b.namespace)
	whole := func(name, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":%q,"metadata":{"name":%q},"spec":%s}`, randomGroup, d.kind, name, spec)
	}
	b.send(t, request{"POST", at, "", []byte(whole("a", `{"keyed":[{"n":1}]}`))})
	r := random(t)
	requests := 0
	for _, place := range numberPlaces {
		for _, text := range numberTexts {
			spec := fmt.Sprintf(place, text)
			mode := "&fieldValidation=" + pick(r, []string{"Strict", "Warn", "Ignore"})
			var versions [2]string
			for i, s := range b.servers {
				metadata := s.send(t, request{"GET", at + "/a", "", nil}).body["metadata"].(tree)
				versions[i] = metadata["resourceVersion"].(string)
			}
			for _, each := range [][3]string{
				{"POST", "", whole("b", spec)},
				{"PUT", "", strings.Replace(whole("a", spec), `"name":"a"`, `"name":"a","resourceVersion":"{version}"`, 1)},
				{"PATCH", merged, fmt.Sprintf(`{"spec":%s}`, spec)},
				{"PATCH", "application/json-patch+json", fmt.Sprintf(`[{"op":"add","path":"/spec","value":%s}]`, spec)},
				{"PATCH", "application/json-patch+json", fmt.Sprintf(`[{"op":"add","path":"/spec","value":%s},{"op":"test","path":"/spec","value":%[1]s}]`, spec)},
				{"PATCH", applied, whole("a", spec)},
				{"PATCH", applied, whole("c", spec)},
			} {
				path := at + "?dryRun=All" + mode
				switch {
				case each[0] == "POST":
				case strings.Contains(each[2], `"name":"c"`):
					path = at + "/c?dryRun=All&fieldManager=x" + mode
				case each[1] == applied:
					path = at + "/a?dryRun=All&fieldManager=x&force=true" + mode
				default:
					path = at + "/a?dryRun=All" + mode
				}
				if each[1] == applied && strings.Contains(text, "e400") || text == "-0.0" && strings.Contains(place, "[") {
					continue // docs/compatibility.md#custom-resources
				}
				var texts [2]string
				for i, s := range b.servers {
					texts[i] = s.exact(t, each[0], path, each[1], strings.ReplaceAll(each[2], "{version}", versions[i]))
				}
				requests++
				if texts[0] != texts[1] && (!strings.HasPrefix(texts[0], "500 ") || clientError.Replace(texts[1]) != texts[0]) {
					t.Errorf("%s %s %s\nkube-apiserver %.600s\nTidemark       %.600s", each[0], each[1], each[2], texts[0], texts[1])
				}
			}
		}
	}
	t.Logf("%d requests", requests)
}

// clientError makes the error of an apply that does not fit the schema the one of kube-apiserver: docs/compatibility.md#s5.
var clientError = strings.NewReplacer("400 []", "500 []", `"code":400`, `"code":500`, `"reason":"BadRequest",`, "")

// exact sends a request, and returns the response with its numbers unchanged.
func (s sender) exact(t *testing.T, method, path, media, body string) string {
	t.Helper()
	sent, err := http.NewRequestWithContext(t.Context(), method, s.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if sent.Header.Set("Content-Type", "application/json"); media != "" {
		sent.Header.Set("Content-Type", media)
	}
	got, err := s.client.Do(sent)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	warnings := got.Header.Values("Warning")
	slices.Sort(warnings)
	var o tree
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if metadata, ok := o["metadata"].(tree); ok {
		delete(metadata, "resourceVersion")
	}
	if message, ok := o["message"].(string); ok {
		o["message"] = masked(message)
	}
	if details, ok := o["details"].(tree); ok {
		causes, _ := details["causes"].([]any)
		for _, c := range causes {
			c.(tree)["message"] = masked(fmt.Sprint(c.(tree)["message"]))
		}
	}
	return fmt.Sprint(got.StatusCode, warnings, marshal(o))
}
