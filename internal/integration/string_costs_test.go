package integration_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

var (
	stringsAll = flag.Bool("strings-all", false, "TestStringCosts tries all shapes for each string, and not some by chance")
	stringsOf  = flag.String("strings-of", "", "a regular expression for the kinds and strings that TestStringCosts tries")
)

const (
	// stringShapes is how many shapes TestStringCosts tries for each string.
	stringShapes = 8
	// stringBytes is the length of the strings. Those that look slow are compared with strings of four times the length.
	stringBytes = 64 << 10
	// parameterBytes is the same for parameters and headers.
	parameterBytes = 16 << 10
	// suspicious is how many times as much CPU as a plain string of the same length a string takes that is measured again,
	// without the garbage collector.
	suspicious = 25
	// slowText is how many times as much a string may take. JSON has six bytes for a NUL, so 20 times is normal.
	slowText = 40
	// slowYAML is the same for YAML, whose parser takes a microsecond for a key of two bytes.
	slowYAML = 120
	// stringAttempts is how often a slow string is measured before it counts as slow: other work on the machine slows down
	// some of the measurements.
	stringAttempts = 5
)

// TestStringCosts sends long strings of many shapes in each string of each kind, in custom resources with each format, in
// patterns and expressions, in parameters and in headers. The CPU time grows as the length does, it is at most a few times
// that of a plain string, and no response is an error of the server. By default it tries some shapes for each string, by chance.
func TestStringCosts(t *testing.T) {
	tier.Full(t)
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	s := stringCosts{t: t, host: c.Host, client: servertest.Client(t, c), chance: testrand.New(t), of: regexp.MustCompile(*stringsOf), codes: map[int]int{}, usual: map[int]time.Duration{}}
	for _, n := range []int{stringBytes, parameterBytes} {
		s.usual[n] = time.Duration(1<<63 - 1)
		for range stringAttempts {
			s.usual[n] = min(s.usual[n], s.plain(n))
		}
	}
	run(t, c, []step{{"POST " + definitions, definition(formatted()), 201, nil}, {"POST " + configMaps, `{"metadata":{"name":"base"}}`, 201, nil}})
	s.kinds()
	for _, f := range formats {
		s.body("format "+f, things, asJSON, func(text string) string {
			return thing("a", `{"`+f+`":`+quoted(text)+`}`)
		})
	}
	for name, one := range stringsInBodies {
		media, form, _ := strings.Cut(one, " ")
		s.body(name, configMaps, media, func(text string) string {
			return strings.NewReplacer("QUOTED", quoted(text), "TEXT", text).Replace(form)
		})
	}
	for _, name := range strings.Fields("labelSelector fieldSelector limit continue resourceVersion resourceVersionMatch timeoutSeconds allowWatchBookmarks sendInitialEvents timeout pretty includeObject dryRun fieldManager fieldValidation force propagationPolicy gracePeriodSeconds orphanDependents other") {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			s.try(method+" with the parameter "+name, parameterBytes, func(text string) (*http.Request, error) {
				q := url.Values{name: {text}}
				if name != "dryRun" {
					q.Set("dryRun", "All")
				}
				return http.NewRequest(method, s.host+configMaps+"?"+q.Encode(), strings.NewReader(`{}`))
			})
		}
	}
	for _, name := range strings.Fields("Accept Accept-Encoding Accept-Language Authorization Content-Type Content-Encoding User-Agent Impersonate-User Impersonate-Group Impersonate-Uid Impersonate-Extra-A If-None-Match Audit-Id Traceparent Cookie Range Origin X-Forwarded-For") {
		s.try("header "+name, parameterBytes, func(text string) (*http.Request, error) {
			r, err := http.NewRequest(http.MethodPost, s.host+configMaps+"?dryRun=All", strings.NewReader(`{"metadata":{"name":"x"}}`))
			if err != nil {
				return nil, err
			}
			if name == "Authorization" {
				text = "Bearer " + text
			}
			r.Header.Set(name, text)
			return r, nil
		})
	}
	s.try("a path", parameterBytes, func(text string) (*http.Request, error) {
		return http.NewRequest(http.MethodGet, s.host+configMaps+"/"+url.PathEscape(text), nil)
	})
	t.Logf("%d strings, %d requests, %d of them measured again; codes: %v; plain strings took %v", s.strings, s.requests, s.suspects, s.codes, s.usual)
	if *stringsOf == "" && (s.strings < 1000 || s.codes[http.StatusCreated] < s.requests/20) {
		t.Error("too few strings, or too few successes")
	}
}

// formats are the formats of strings that a schema may have.
var formats = strings.Fields("bsonobjectid uri email hostname ipv4 ipv6 cidr mac uuid uuid3 uuid4 uuid5 isbn isbn10 isbn13 creditcard ssn hexcolor rgbcolor byte password date duration datetime date-time k8s-short-name k8s-long-name")

// formatted returns the members of an object, one for each format.
func formatted() string {
	var all []string
	for _, f := range formats {
		all = append(all, fmt.Sprintf(`%q:{"type":"string","format":%q}`, f, f))
	}
	return strings.Join(all, ",")
}

// stringsInBodies are bodies with a text: the media type, and the body. A patch goes to the object base.
var stringsInBodies = map[string]string{
	"a body of JSON":                    asJSON + " TEXT",
	"a body of YAML":                    "application/yaml TEXT",
	"a body of protobuf":                asProtobuf + " k8s\x00TEXT",
	"a scalar of YAML":                  "application/yaml {metadata: {name: x}, data: {k: TEXT}}",
	"a block of YAML":                   "application/yaml metadata:\n  name: x\ndata:\n  k: |\n    TEXT\n",
	"a tag of YAML":                     "application/yaml {metadata: {name: x}, data: {k: !TEXT 1}}",
	"a path of a JSON patch":            asJSONPatch + ` [{"op":"add","path":QUOTED,"value":{}}]`,
	"a pointer of a JSON patch":         asJSONPatch + ` [{"op":"copy","from":QUOTED,"path":"/data"}]`,
	"an operation of a JSON patch":      asJSONPatch + ` [{"op":QUOTED,"path":"/data","value":{}}]`,
	"a directive of a strategic patch":  asStrategic + ` {"data":{"$patch":QUOTED}}`,
	"a key of a strategic patch":        asStrategic + ` {"data":{QUOTED:"x"}}`,
	"a list to keep of a patch":         asStrategic + ` {"metadata":{"$retainKeys":[QUOTED],"finalizers":[]}}`,
	"a primitive to delete of a patch":  asStrategic + ` {"metadata":{"$deleteFromPrimitiveList/finalizers":[QUOTED]}}`,
	"an order of a patch":               asStrategic + ` {"metadata":{"$setElementOrder/finalizers":[QUOTED]}}`,
	"a key of a merge patch":            asMerge + ` {"data":{QUOTED:"x"}}`,
	"a version of an apply":             asApply + ` {"apiVersion":QUOTED,"kind":"ConfigMap","metadata":{"name":"base"}}`,
	"a key of an applied configuration": asApply + ` {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"base"},"data":{QUOTED:"x"}}`,
}

type stringCosts struct {
	t                           *testing.T
	host                        string
	client                      *http.Client
	chance                      *rand.Rand
	of                          *regexp.Regexp
	strings, requests, suspects int
	codes                       map[int]int
	usual                       map[int]time.Duration // the CPU time of a plain string, by its length
}

// reviewBases are objects of kinds without templates.
var reviewBases = []string{
	`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"a.b.c"}}`,
	`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","resourceAttributes":{"verb":"get","resource":"pods"}}}`,
	`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`,
	`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"default"}}`,
	`{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview","metadata":{"namespace":"default"},"spec":{"user":"u","resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}}}`,
}

// kinds tries the strings of all kinds.
func (s *stringCosts) kinds() {
	bases := map[string]map[string]any{}
	add := func(o map[string]any) { bases[fmt.Sprint(o["apiVersion"], " ", o["kind"])] = o }
	for _, o := range testkinds.Objects(s.t, "../../test/kinds/testdata/objects", "x", rand.New(rand.NewPCG(1, 1))) {
		add(o)
	}
	crd := strings.NewReplacer("things", "others", `"Thing"`, `"Other"`, `{"metadata"`, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata"`,
		`"storage":true,`, `"storage":true,"additionalPrinterColumns":[{"name":"c","type":"string","jsonPath":".a"}],"selectableFields":[{"jsonPath":".spec.x"}],`).Replace(definition(`"x":{"type":"string","default":"a"}`))
	for _, text := range append(reviewBases, crd) {
		var o map[string]any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			s.t.Fatal(err)
		}
		add(o)
	}
	var all testkinds.Strings
	for typ := range builtin.Catalog().Types() {
		base := bases[typ.GroupVersion().String()+" "+typ.Kind]
		if base == nil {
			continue // a kind that is only a subresource, or has no members of its own
		}
		path := "/apis/" + typ.GroupVersion().String()
		if typ.Group == "" {
			path = "/api/v1"
		}
		if typ.Namespaced {
			path += "/namespaces/default"
		}
		for _, one := range all.Of(typ.New()) {
			s.body(typ.Kind+" "+one.Name, path+"/"+typ.Resource, asJSON, func(text string) string {
				b, err := json.Marshal(one.Fill(base, text))
				if err != nil {
					s.t.Fatal(err)
				}
				return string(b)
			})
		}
	}
}

// body tries a string of a body.
func (s *stringCosts) body(name, path, media string, body func(text string) string) {
	s.try(name, stringBytes, func(text string) (*http.Request, error) {
		method, path := http.MethodPost, path+"?dryRun=All"
		if strings.Contains(media, "patch") {
			method, path = http.MethodPatch, configMaps+"/base?dryRun=All&fieldManager=m"
		}
		r, err := http.NewRequest(method, s.host+path, strings.NewReader(body(text)))
		if err == nil {
			r.Header.Set("Content-Type", media)
		}
		return r, err
	})
}

// try sends texts of several shapes.
func (s *stringCosts) try(name string, n int, request func(text string) (*http.Request, error)) {
	if !s.of.MatchString(name) {
		return
	}
	s.strings++
	shapes := testkinds.Shapes()
	s.chance.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
	if !*stringsAll {
		shapes = shapes[:stringShapes]
	}
	most := float64(slowText)
	if strings.Contains(name, "YAML") {
		most = slowYAML
	}
	for _, shape := range shapes {
		began := testkinds.CPUTime()
		s.send(name, request, shape.Of(n))
		if testkinds.CPUTime()-began < s.usual[n]*suspicious {
			continue
		}
		s.suspects++
		times := math.Inf(1)
		for attempt := 0; attempt < stringAttempts && times > most; attempt++ {
			took, _ := s.measure(name, request, shape.Of(n))
			times = min(times, float64(took)/float64(s.plain(n)))
		}
		if times > most {
			s.t.Errorf("%s, a text %q: takes %.0f times as much as a plain one", name, shape.Name, times)
		}
		slow := testkinds.Growth(n, s.usual[n]*suspicious, func(n int) testkinds.Steps {
			took, code := s.measure(name, request, shape.Of(n))
			return testkinds.Steps{fmt.Sprint("the response with ", code): took}
		})
		if slow != "" {
			s.t.Errorf("%s, a text %q: %s", name, shape.Name, slow)
		}
	}
}

// plain returns the CPU time of a plain string of n bytes.
func (s *stringCosts) plain(n int) time.Duration {
	took, _ := s.measure("a plain string", func(text string) (*http.Request, error) {
		r, err := http.NewRequest(http.MethodPost, s.host+configMaps+"?dryRun=All", strings.NewReader(`{"metadata":{"name":"x"},"data":{"k":"`+text+`"}}`))
		if err == nil {
			r.Header.Set("Content-Type", asJSON)
		}
		return r, err
	}, strings.Repeat("a", n))
	return took
}

// measure sends a text, and returns the CPU time and the code of the response.
func (s *stringCosts) measure(name string, request func(text string) (*http.Request, error), text string) (took time.Duration, code int) {
	steps := testkinds.Steps{}
	steps.Do("request", func() error { code = s.send(name, request, text); return nil })
	return steps["request"], code
}

// send sends a text, and returns the code of the response; 0: the client refuses to send it.
func (s *stringCosts) send(name string, request func(text string) (*http.Request, error), text string) int {
	s.requests++
	r, err := request(text)
	if err != nil {
		return 0
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	defer io.Copy(io.Discard, resp.Body)
	if s.codes[resp.StatusCode]++; resp.StatusCode >= http.StatusInternalServerError {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 400))
		s.t.Errorf("%s, %.40q: %d %s", name, text, resp.StatusCode, why)
	}
	return resp.StatusCode
}
