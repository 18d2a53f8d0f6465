package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

const (
	crashDefinitions  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	crashKinds        = 6
	crashCustomRounds = 6
	crashCustomSteps  = 600 // before each kill, at most
)

// TestKillCustom kills the real process with SIGKILL while definitions are created, changed and
// deleted and their objects written, and checks after each restart that acknowledged writes hold:
// definitions and objects exist and are served, deleted ones are gone, and no definition is half
// removed.
func TestKillCustom(t *testing.T) {
	tier.Full(t)
	rng := random(t)
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)
	kinds := make([]*crashKind, crashKinds)
	for i := range kinds {
		kinds[i] = &crashKind{name: fmt.Sprintf("crash%ds", i), objects: map[string]bool{}}
	}
	steps := 0
	for round := range crashCustomRounds {
		var left atomic.Int64 // steps until the kill, which comes while the clients still write
		left.Store(crashCustomSteps/4 + rng.Int64N(crashCustomSteps*3/4))
		var wg sync.WaitGroup
		for _, k := range kinds {
			own := rand.New(rand.NewPCG(rng.Uint64(), 1))
			wg.Go(func() {
				for k.step(p, own) {
					if left.Add(-1) == 0 {
						p.cmd.Process.Kill()
					}
				}
			})
		}
		wg.Wait()
		p.kill()
		p.start()
		for _, k := range kinds {
			k.check(t, p, round)
			steps += k.steps
			k.steps = 0
		}
	}
	t.Logf("%d steps acknowledged over %d kills", steps, crashCustomRounds)
}

// crashKind is the client's knowledge of a definition. Only one client writes it.
type crashKind struct {
	name string
	// defined means that the definition exists. If its creation or deletion got no response,
	// unsure is set.
	defined, unsure bool
	schema          int // how many changes of the schema are acknowledged
	objects         map[string]bool
	maybe           string // the object whose write got no response
	steps           int
	next            int
}

func (k *crashKind) definition(schema int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.crash.example.com"},"spec":{"group":"crash.example.com","scope":"Cluster",
		"names":{"plural":%[1]q,"kind":%[2]q},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"schema":{"type":"integer","default":%[3]d}}}}}}}]}}`,
		k.name, strings.ToUpper(k.name[:1])+k.name[1:], schema)
}

func (k *crashKind) object(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"crash.example.com/v1","kind":%q,"metadata":{"name":%q},"spec":{}}`, strings.ToUpper(k.name[:1])+k.name[1:], name)
}

func (k *crashKind) collection() string { return "/apis/crash.example.com/v1/" + k.name }
func (k *crashKind) at() string         { return crashDefinitions + "/" + k.name + ".crash.example.com" }

// step makes one request, and reports whether the server responded.
func (k *crashKind) step(p *process, rng *rand.Rand) bool {
	ctx := context.Background()
	var err error
	code := 0
	switch n := rng.IntN(12); {
	case !k.defined:
		k.unsure = true
		if code, _, err = p.do(ctx, "POST", crashDefinitions, k.definition(0)); err == nil && code == http.StatusCreated {
			k.defined, k.unsure, k.schema = true, false, 0
		} else if err == nil && code == http.StatusConflict { // its deletion is not over yet
			k.unsure, code = false, http.StatusOK
		}
	case n == 0:
		k.unsure = true
		if code, _, err = p.do(ctx, "DELETE", k.at(), nil); err == nil && code == http.StatusOK {
			*k = crashKind{name: k.name, objects: map[string]bool{}, steps: k.steps, next: k.next}
		}
	case n < 4:
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/schema/default","value":%d}]`, k.schema+1)
		if code, err = p.patch(k.at(), patch); err == nil && code == http.StatusOK {
			k.schema++
		}
	default:
		k.next++
		k.maybe = fmt.Sprintf("o%d", k.next)
		if code, _, err = p.do(ctx, "POST", k.collection(), k.object(k.maybe)); err == nil && code == http.StatusCreated {
			k.objects[k.maybe], k.maybe = true, ""
		}
	}
	if err != nil {
		return false
	}
	if code >= 300 {
		p.t.Errorf("%s: %d", k.name, code)
		return false
	}
	k.steps++
	return true
}

func (p *process) patch(path string, body []byte) (int, error) {
	r, err := http.NewRequest("PATCH", p.base+path, strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json-patch+json")
	response, err := p.client.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// check compares the restarted server with the client's knowledge, and resolves unknowns.
func (k *crashKind) check(t *testing.T, p *process, round int) {
	t.Helper()
	code, body, err := p.do(t.Context(), "GET", k.at(), nil)
	var d struct {
		Metadata struct{ DeletionTimestamp string }
		Status   struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err == nil && code == http.StatusOK {
		err = json.Unmarshal(body, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	there := code == http.StatusOK && d.Metadata.DeletionTimestamp == ""
	if there != k.defined && !k.unsure {
		t.Errorf("round %d: %s is defined: %v, acknowledged was %v", round, k.name, there, k.defined)
	}
	if there && k.unsure && !k.defined {
		k.schema = 0
	}
	k.defined, k.unsure = there, false
	if !there {
		*k = crashKind{name: k.name, objects: map[string]bool{}, steps: k.steps, next: k.next}
		return
	}
	if len(d.Status.Conditions) < 2 {
		t.Errorf("round %d: the conditions of %s are %v", round, k.name, d.Status.Conditions)
	}
	k.checkObjects(t, p, round)
}

func (k *crashKind) checkObjects(t *testing.T, p *process, round int) {
	t.Helper()
	code, body, err := p.do(t.Context(), "GET", k.collection(), nil)
	var list struct{ Items []object }
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil || code != http.StatusOK {
		t.Fatalf("round %d: the list of %s: %d %v", round, k.name, code, err)
	}
	found := map[string]bool{}
	for _, o := range list.Items {
		found[o.Metadata.Name] = true
		if !k.objects[o.Metadata.Name] && o.Metadata.Name != k.maybe {
			t.Errorf("round %d: %s has %s, which was not created since the definition", round, k.name, o.Metadata.Name)
		}
	}
	for name := range k.objects {
		if !found[name] {
			t.Errorf("round %d: %s/%s is lost", round, k.name, name)
		}
	}
	k.objects, k.maybe = found, ""
	code, body, err = p.do(t.Context(), "POST", k.collection()+"?dryRun=All", k.object("now"))
	var now struct{ Spec struct{ Schema int } }
	if err == nil {
		err = json.Unmarshal(body, &now)
	}
	if err != nil || code != http.StatusCreated || now.Spec.Schema < k.schema || now.Spec.Schema > k.schema+1 {
		t.Errorf("round %d: an object of %s is %d, of schema %d (%d acknowledged): %v", round, k.name, code, now.Spec.Schema, k.schema, err)
	}
	k.schema = now.Spec.Schema
}
