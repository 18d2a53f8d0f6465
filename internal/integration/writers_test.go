package integration_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// writerSteps is the number of requests of each writer of TestWriters.
var writerSteps = flag.Int("writer-steps", 150, "requests of each concurrent writer of TestWriters")

// target is an object that all writers write.
type target struct {
	path string // of its collection
	name string
	// counts is where keys of writers are: a member of the object and one in it.
	counts [2]string
	head   string // kind and apiVersion
	spec   string // of a new one
}

func (t *target) url() string { return t.path + "/" + t.name }

const (
	configMaps  = "/api/v1/namespaces/default/configmaps"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
)

var targets = []target{
	{configMaps, "a", [2]string{"data"}, `"kind":"ConfigMap","apiVersion":"v1"`, ""},
	{configMaps, "b", [2]string{"data"}, `"kind":"ConfigMap","apiVersion":"v1"`, ""},
	{deployments, "a", [2]string{"metadata", "annotations"}, `"kind":"Deployment","apiVersion":"apps/v1"`,
		`,"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`},
}

// with returns an object or a patch with these members of metadata and these keys,
// which are JSON members without braces.
func (t *target) with(metadata, keys string) string {
	if t.counts[0] == "data" {
		return fmt.Sprintf(`{%s,"metadata":{"name":%q%s},"data":{%s}}`, t.head, t.name, metadata, keys)
	}
	return fmt.Sprintf(`{%s,"metadata":{"name":%q,"annotations":{%s}%s}}`, t.head, t.name, keys, metadata)
}

// pointer returns the JSON pointer to a key.
func (t *target) pointer(key string) string {
	if t.counts[1] == "" {
		return "/" + t.counts[0] + "/" + key
	}
	return "/" + t.counts[0] + "/" + t.counts[1] + "/" + key
}

// written is an object in the form that the test checks.
type written struct {
	raw  json.RawMessage
	tree map[string]any
	path string // of its collection

	Metadata struct {
		Name, UID, ResourceVersion, DeletionTimestamp string
		Generation                                    int64
		Finalizers                                    []string
		OwnerReferences                               []struct{ UID string }
	}
}

func read(path string, raw []byte) (*written, error) {
	w := &written{raw: bytes.TrimSpace(raw), path: path}
	if err := json.Unmarshal(raw, w); err != nil {
		return nil, err
	}
	return w, json.Unmarshal(raw, &w.tree)
}

func (w *written) version() uint64 {
	n, _ := strconv.ParseUint(w.Metadata.ResourceVersion, 10, 64)
	return n
}

// keys returns the keys that writers write, wherever the kind has them.
func (w *written) keys() map[string]any {
	if w.path == configMaps {
		m, _ := w.tree["data"].(map[string]any)
		return m
	}
	return w.annotations()
}

func (w *written) annotations() map[string]any {
	m, _ := w.tree["metadata"].(map[string]any)["annotations"].(map[string]any)
	return m
}

// going reports whether the write removes the last finalizer of a deleted object,
// which is then not stored.
func (w *written) going() bool {
	return w.Metadata.DeletionTimestamp != "" && len(w.Metadata.Finalizers) == 0
}

// writer is one of several clients. It writes keys of its own.
type writer struct {
	*writers
	id     string
	chance *rand.Rand
	n      int // number of its writes
}

// writers has the records of all writers.
type writers struct {
	t    *testing.T
	host string
	http *http.Client

	mu        sync.Mutex
	responses []*written                   // acknowledged writes
	own       map[string]map[string]string // UID -> key -> the value that was acknowledged last, empty: none
	counted   map[string]int               // UID -> acknowledged increments
	made      int
	refusals  map[string]int
}

// do sends a request; accepted says which refusals are part of the game.
func (w *writer) do(method, media, path, body string, accepted ...int) (*written, int) {
	req, err := http.NewRequest(method, w.host+path, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return nil, 0
	}
	req.Header.Set("Content-Type", media)
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return nil, 0
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
		return nil, 0
	}
	if resp.StatusCode >= 300 {
		if !slices.Contains(accepted, resp.StatusCode) {
			w.t.Errorf("%s %s %s: %d %s", method, path, body, resp.StatusCode, response)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refusals[fmt.Sprint(method, " ", resp.StatusCode)]++
		return nil, resp.StatusCode
	}
	collection := configMaps
	if strings.HasPrefix(path, deployments) {
		collection = deployments
	}
	o, err := read(collection, response)
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return nil, 0
	}
	return o, resp.StatusCode
}

// acknowledged records the response of a successful write.
func (w *writer) acknowledged(o *written, own map[string]string, counted int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	w.responses = append(w.responses, o)
	keys, uid := o.keys(), o.Metadata.UID
	if w.own[uid] == nil {
		w.own[uid] = map[string]string{}
	}
	for key, value := range own {
		w.own[uid][key] = value
		if got, _ := keys[key].(string); got != value {
			w.t.Errorf("%s wrote %s=%q of %s, and got a response %q", w.id, key, value, uid, got)
		}
	}
	w.counted[uid] += counted
}

func (w *writer) value() string { w.n++; return strconv.Itoa(w.n) }

// query returns a query with the writer's own field manager.
func (w *writer) query(more string) string { return "?fieldManager=" + w.id + more }

const (
	asJSON      = "application/json"
	asMerge     = "application/merge-patch+json"
	asStrategic = "application/strategic-merge-patch+json"
	asJSONPatch = "application/json-patch+json"
	asApply     = "application/apply-patch+yaml"
)

// step does something by chance.
func (w *writer) step() {
	t := &targets[w.chance.IntN(len(targets))]
	switch w.chance.IntN(16) {
	case 0, 1:
		w.create(t)
	case 2, 3:
		w.update(t)
	case 4:
		w.merge(t, asMerge)
	case 5:
		w.merge(t, asStrategic)
	case 6:
		w.increment(t)
	case 7, 8:
		w.jsonIncrement(t)
	case 9, 10:
		w.apply(t)
	case 11:
		w.finalizer(t)
	case 12:
		w.status(t)
	case 13:
		w.child(t)
	case 14:
		w.rehearse(t)
	default:
		w.delete(t)
	}
}

func (w *writer) create(t *target) {
	key, value := w.id, w.value()
	metadata := ""
	if w.chance.IntN(2) == 0 {
		metadata = fmt.Sprintf(`,"finalizers":["example.com/%s"]`, w.id)
	}
	body := strings.TrimSuffix(t.with(metadata, fmt.Sprintf(`"count":"0",%q:%q`, key, value)), "}") + t.spec + "}"
	if o, _ := w.do("POST", asJSON, t.path+w.query(""), body, 409); o != nil {
		w.acknowledged(o, map[string]string{key: value}, 0)
	}
}

// update reads the object, changes it, and puts it back with its version.
func (w *writer) update(t *target) {
	o, _ := w.do("GET", asJSON, t.url(), "", 404)
	if o == nil {
		return
	}
	if o.Metadata.DeletionTimestamp != "" {
		w.finalizer(t) // it is time to let go
		return
	}
	key, value, counted := w.id, w.value(), 0
	keys := o.keys()
	if keys == nil {
		return // no writer counts here
	}
	keys[key] = value
	if n, err := strconv.Atoi(fmt.Sprint(keys["count"])); err == nil {
		keys["count"], counted = strconv.Itoa(n+1), 1
	}
	body, err := json.Marshal(o.tree)
	if err != nil {
		w.t.Error(err)
		return
	}
	if o, _ = w.do("PUT", asJSON, t.url()+w.query(""), string(body), 404, 409); o != nil {
		w.acknowledged(o, map[string]string{key: value}, counted)
	}
}

// merge writes a key without a version. On a Deployment a strategic merge patch also
// writes a container of the writer.
func (w *writer) merge(t *target, media string) {
	key, value := w.id, w.value()
	body := t.with("", fmt.Sprintf(`%q:%q`, key, value))
	if media == asStrategic && t.path == deployments {
		container := fmt.Sprintf(`{"name":%q,"image":"i:%s"}`, w.id, value)
		if w.chance.IntN(3) == 0 {
			container = fmt.Sprintf(`{"name":%q,"$patch":"delete"}`, w.id)
		}
		body = strings.TrimSuffix(body, "}") + `,"spec":{"template":{"spec":{"containers":[` + container + `]}}}}`
	}
	if o, _ := w.do("PATCH", media, t.url()+w.query(""), body, 404); o != nil {
		w.acknowledged(o, map[string]string{key: value}, 0)
	}
}

// increment increments a counter by a patch with the version.
func (w *writer) increment(t *target) {
	o, _ := w.do("GET", asJSON, t.url(), "", 404)
	if o == nil {
		return
	}
	n, err := strconv.Atoi(fmt.Sprint(o.keys()["count"]))
	if err != nil {
		return
	}
	body := t.with(fmt.Sprintf(`,"resourceVersion":%q`, o.Metadata.ResourceVersion), fmt.Sprintf(`"count":"%d"`, n+1))
	if o, _ = w.do("PATCH", asMerge, t.url()+w.query(""), body, 404, 409); o != nil {
		w.acknowledged(o, nil, 1)
	}
}

// jsonIncrement increments a counter by a JSON patch that tests the old value and the
// identity of the object.
func (w *writer) jsonIncrement(t *target) {
	o, _ := w.do("GET", asJSON, t.url(), "", 404)
	if o == nil {
		return
	}
	n, err := strconv.Atoi(fmt.Sprint(o.keys()["count"]))
	if err != nil || o.Metadata.DeletionTimestamp != "" {
		w.finalizer(t)
		return
	}
	key, value := w.id, w.value()
	body := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":%q,"value":"%d"},{"op":"replace","path":%q,"value":"%d"},{"op":"add","path":%q,"value":%q}]`,
		o.Metadata.UID, t.pointer("count"), n, t.pointer("count"), n+1, t.pointer(key), value)
	if o, _ = w.do("PATCH", asJSONPatch, t.url()+w.query(""), body, 404, 422); o != nil {
		w.acknowledged(o, map[string]string{key: value}, 1)
	}
}

// apply applies some of the writer's keys: afterwards the writer has exactly those.
// Sometimes it applies a key that all writers want.
func (w *writer) apply(t *target) {
	own := map[string]string{}
	var keys []string
	for i := range 3 {
		key := fmt.Sprintf("%s-%d", w.id, i)
		// One at least: who applies an empty map owns it, and no object has it.
		if own[key] = ""; i == 0 || w.chance.IntN(2) == 0 {
			own[key] = w.value()
			keys = append(keys, fmt.Sprintf(`%q:%q`, key, own[key]))
		}
	}
	force := ""
	if w.chance.IntN(2) == 0 {
		keys = append(keys, fmt.Sprintf(`"all":%q`, w.id))
		force = []string{"", "&force=true"}[w.chance.IntN(2)]
	}
	body := t.with("", strings.Join(keys, ","))
	if t.spec != "" {
		body = strings.TrimSuffix(body, "}") + t.spec + "}"
		force = "&force=true" // all want the rest
	}
	if o, _ := w.do("PATCH", asApply, t.url()+w.query(force), body, 409); o != nil {
		w.acknowledged(o, own, 0)
	}
}

// finalizer adds or removes the writer's own finalizer.
func (w *writer) finalizer(t *target) {
	o, _ := w.do("GET", asJSON, t.url(), "", 404)
	if o == nil {
		return
	}
	mine := "example.com/" + w.id
	finalizers := slices.DeleteFunc(o.Metadata.Finalizers, func(f string) bool { return f == mine })
	var refused int
	if len(finalizers) == len(o.Metadata.Finalizers) {
		finalizers = append(finalizers, mine)
		if o.Metadata.DeletionTimestamp != "" {
			refused = 422 // too late
		}
	}
	list, _ := json.Marshal(finalizers)
	body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"finalizers":%s}}`, o.Metadata.ResourceVersion, list)
	if o, _ = w.do("PATCH", asMerge, t.url()+w.query(""), body, 404, 409, refused); o != nil {
		w.acknowledged(o, nil, 0)
	}
}

// status writes the status of a Deployment, and tries to write more with it.
func (w *writer) status(t *target) {
	if t.path != deployments {
		return
	}
	body := fmt.Sprintf(`{"spec":{"replicas":77},"status":{"replicas":%s,"conditions":[{"type":%q,"status":"True"}]}}`, w.value(), w.id)
	if o, _ := w.do("PATCH", asStrategic, t.url()+"/status"+w.query(""), body, 404); o != nil {
		w.acknowledged(o, nil, 0)
	}
}

// child creates an object that the target owns.
func (w *writer) child(t *target) {
	owner, _ := w.do("GET", asJSON, t.url(), "", 404)
	if owner == nil {
		return
	}
	body := fmt.Sprintf(`{"metadata":{"generateName":"child-","labels":{"child":"yes"},"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":%v}]}}`,
		owner.tree["apiVersion"], owner.tree["kind"], t.name, owner.Metadata.UID, w.chance.IntN(2) == 0)
	if o, _ := w.do("POST", asJSON, configMaps+w.query(""), body); o != nil {
		w.acknowledged(o, nil, 0)
	}
}

// rehearse sends a dry-run write, which must change nothing.
func (w *writer) rehearse(t *target) {
	const dry = "&dryRun=All"
	body := t.with("", `"dry":"yes"`)
	switch w.chance.IntN(4) {
	case 0:
		w.do("PATCH", asMerge, t.url()+w.query(dry), body, 404)
	case 1:
		w.do("PATCH", asApply, t.url()+w.query(dry+"&force=true"), strings.TrimSuffix(body, "}")+t.spec+"}", 409)
	case 2:
		w.do("POST", asJSON, t.path+w.query(dry), strings.TrimSuffix(body, "}")+t.spec+"}", 409)
	default:
		w.do("DELETE", asJSON, t.url()+"?dryRun=All", "", 404)
	}
}

func (w *writer) delete(t *target) {
	if w.chance.IntN(4) == 0 {
		w.do("DELETE", asJSON, configMaps+"?labelSelector="+url.QueryEscape("child=yes"), "")
		return
	}
	policy := []string{"", "?propagationPolicy=Foreground", "?propagationPolicy=Background", "?propagationPolicy=Orphan"}[w.chance.IntN(4)]
	w.do("DELETE", asJSON, t.url()+policy, "", 404)
}

// TestWriters lets writers change the same objects concurrently in every way, and
// compares their responses with two watches and with lists: no update is lost,
// nothing is written after an object is gone, generations and managed fields are
// right, and the events are the stored states.
func TestWriters(t *testing.T) {
	chance := testrand.New(t)
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"*", "-root-ca-certificate-publisher"}})
	c := s.RESTConfig()
	all := &writers{t: t, host: c.Host, http: servertest.Client(t, c), own: map[string]map[string]string{}, counted: map[string]int{}, refusals: map[string]int{}}
	watched := []*record{all.watch(configMaps, all.list(configMaps, "").version), all.watch(deployments, all.list(deployments, "").version)}
	var wg sync.WaitGroup
	for i := range 6 {
		w := &writer{writers: all, id: fmt.Sprintf("w%d", i), chance: rand.New(rand.NewPCG(chance.Uint64(), uint64(i)))}
		wg.Go(func() {
			for range *writerSteps {
				w.step()
			}
		})
	}
	wg.Wait()
	settle(t, c)
	for i, r := range watched {
		last := &writer{writers: all, id: "last"}
		end, _ := last.do("POST", asJSON, r.path+last.query(""), edge(&targets[2*i]))
		if end == nil {
			return
		}
		r.until(end.version())
		all.check(r)
		all.again(chance, r)
	}
	all.checkChildren()
	t.Logf("%d writes made, %d and %d events, refused: %v", all.made, len(watched[0].events), len(watched[1].events), all.refusals)
}

// edge returns an object that marks the end of the events of a collection.
func edge(t *target) string {
	last := *t
	last.name = "the-last"
	return strings.TrimSuffix(last.with("", `"last":"yes"`), "}") + t.spec + "}"
}
