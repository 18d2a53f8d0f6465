package policies_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var (
	decisions = flag.Int("decisions", 2_000, "how many decisions of policies are compared with kube-apiserver")
	record    = flag.Bool("record", false, "record the decisions of kube-apiserver")
)

const (
	policiesPerBatch = 40
	requestsEach     = 20
	recordedSeed     = 20
	recordedBatches  = 1
)

func startTidemark(t *testing.T) *target {
	t.Helper()
	s := &tidemark.Server{Controllers: []string{"-*"}, Admission: tidemark.Admission{NoUnenforcedWarnings: true}}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return newTarget(t, "tidemark", servers.Quick(s.RESTConfig()), false)
}

// batch is the policies and requests that are compared at once.
type batch struct {
	policies []*policy
	requests []request
}

func (g *generator) batch(n int) batch {
	var b batch
	for i := range policiesPerBatch {
		name := fmt.Sprintf("%s-%d-%d", g.namespace, n, i)
		label := fmt.Sprintf("p%d", i)
		if i < len(storedLabels) {
			label = storedLabels[i]
		}
		b.policies = append(b.policies, g.policy(name, label))
	}
	for _, p := range b.policies {
		for range requestsEach {
			b.requests = append(b.requests, g.request(p))
		}
	}
	return b
}

// stored is an object that is there when requests come.
func (g *generator) stored(k *kind, i int) object {
	// The same for each server.
	o := k.object(rand.New(rand.NewPCG(uint64(i), 1)))
	meta := object{"name": storedName(i)}
	if i < len(storedLabels) {
		meta["labels"] = object{"p": storedLabels[i], "app": "a"}
	}
	o["metadata"] = meta
	return o
}

func (s *target) run(t *testing.T, namespace string, b batch) []response {
	defer s.remove(t, b.policies)
	stored := s.install(t, namespace, b.policies)
	return append(stored, s.decide(t, b.requests)...)
}

// TestPoliciesLikePeer compares all responses with those of a kube-apiserver.
func TestPoliciesLikePeer(t *testing.T) {
	tier.Full(t)
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		g := &generator{testrand.New(t), s.Namespace + "-p"}
		peer := newTarget(t, "kube-apiserver", servers.Quick(s.Config), true)
		ours := startTidemark(t)
		for _, one := range []*target{peer, ours} {
			one.setUp(t, g.namespace, g.stored)
		}
		var all tally
		defer func() { all.report(t) }()
		for n := 0; all.decisions < *decisions; n++ {
			b := g.batch(n)
			without := ours.decide(t, b.requests)
			all.compare(t, b, without, ours.run(t, g.namespace, b), peer.run(t, g.namespace, b))
		}
	})
}

// tally counts responses, to show that the decisions are of all sorts.
type tally struct {
	decisions, differences    int
	policies, refusedPolicies int // policies and bindings
	// Requests: denied by a policy, refused for another reason, accepted with a warning, accepted
	// with changes, accepted as without policies.
	denied, failed, warned, mutated, accepted int
}

// count counts the response of kube-apiserver to a request. without is the response without policies.
func (c *tally) count(a, without response) {
	body, _ := a.Body.(map[string]any)
	message, _ := body["message"].(string)
	switch {
	case a.Status >= 300 && strings.Contains(message, "denied request"):
		c.denied++
	case a.Status >= 300:
		c.failed++
	case len(a.Warnings) > 0:
		c.warned++
	case !reflect.DeepEqual(a.Body, without.Body):
		c.mutated++
	default:
		c.accepted++
	}
}

// compare compares the responses to a batch. The responses without policies are only counted with.
func (c *tally) compare(t *testing.T, b batch, without, got, want []response) {
	t.Helper()
	shown := map[*policy]bool{}
	stored := len(want) - len(b.requests)
	if len(got) != len(want) {
		t.Errorf("%d responses to policies and bindings, want %d", len(got)-len(b.requests), stored)
	}
	for i := range min(len(got), len(want)) {
		c.decisions++
		switch {
		case i < stored:
			c.policies++
			if want[i].Status >= 300 {
				c.refusedPolicies++
			}
		default:
			c.count(want[i], without[i-stored])
		}
		if reflect.DeepEqual(got[i], want[i]) || panicked(want[i]) && got[i].Status == want[i].Status || known(got[i], want[i]) {
			continue
		}
		if c.differences++; c.differences > 40 {
			continue // enough to see
		}
		what := "a policy or binding"
		if i >= stored {
			q := b.requests[i-stored]
			body, _ := json.Marshal(q.body)
			p := b.policies[(i-stored)/requestsEach]
			if shown[p] {
				continue // one is enough
			}
			shown[p] = true
			document, _ := json.Marshal(p.document["spec"])
			bindings, _ := json.Marshal(p.bindings)
			what = fmt.Sprintf("%s %s %s\nuser %q\npolicy %s\n%s\nbindings %s", q.method, q.path, body, q.user, p.name, document, bindings)
		}
		t.Errorf("%s:\n%s", what, difference(got[i], want[i]))
	}
}

// known reports whether responses differ as docs/mutating-policies.md says: kube-apiserver cannot take a list or a map of the
// request or of an object as the value of a JSON patch, and shows members that Tidemark has pruned, in random order.
func known(got, want response) bool {
	ours, theirs := marshal(got), marshal(want)
	const unlike = "failed to convert original object to typed object: errors:"
	return strings.Contains(theirs, "type conversion error from '") && strings.Contains(theirs, "' to '*structpb.Value'") ||
		got.Status == want.Status && strings.Contains(ours, unlike) && strings.Contains(theirs, unlike)
}

func marshal(a response) string {
	text, _ := json.Marshal(a)
	return string(text)
}

// panicked reports whether an expression has made kube-apiserver's library panic: docs/policies.md.
func panicked(a response) bool {
	return strings.Contains(marshal(a), "internal error: interface conversion")
}

// difference shows the values that differ, with their paths.
func difference(got, want response) string {
	var b strings.Builder
	if got.Status != want.Status {
		return fmt.Sprintf("got  %v\nwant %v", got, want)
	}
	var walk func(path string, got, want any)
	walk = func(path string, got, want any) {
		if reflect.DeepEqual(got, want) {
			return
		}
		a, isMap := got.(map[string]any)
		z, both := want.(map[string]any)
		if !isMap || !both {
			fmt.Fprintf(&b, "%s:\n got  %v\n want %v\n", path, got, want)
			return
		}
		for key := range a {
			walk(path+"."+key, a[key], z[key])
		}
		for key := range z {
			if _, there := a[key]; !there {
				walk(path+"."+key, nil, z[key])
			}
		}
	}
	walk("warnings", got.Warnings, want.Warnings)
	walk("", got.Body, want.Body)
	return b.String()
}

func (c *tally) String() string {
	return fmt.Sprintf("%d decisions, %d differ: %d policies and bindings (%d refused), %d requests denied, %d refused otherwise, %d with warnings, %d changed, %d accepted",
		c.decisions, c.differences, c.policies, c.refusedPolicies, c.denied, c.failed, c.warned, c.mutated, c.accepted)
}

func (c *tally) report(t *testing.T) {
	t.Log(c)
	// Few policies of a batch change objects, and some batches have none that does.
	if c.denied < c.decisions/10 || c.accepted > c.decisions*2/3 || c.refusedPolicies == 0 {
		t.Error("the decisions are too much alike")
	}
}

// TestRecordedPolicies compares responses with those that a kube-apiserver gave to the same policies
// and requests. They are recorded with -record, and anew when the generator changes.
func TestRecordedPolicies(t *testing.T) {
	tier.Full(t)
	path := filepath.Join("testdata", "decisions.json.gz")
	g := &generator{rand.New(rand.NewPCG(recordedSeed, 0)), "policies-recorded"}
	if *record {
		servers.Peer(t, func(t *testing.T, s servers.Server) {
			peer := newTarget(t, "kube-apiserver", servers.Quick(s.Config), true)
			peer.setUp(t, g.namespace, g.stored)
			var all [][]response
			for n := range recordedBatches {
				all = append(all, peer.run(t, g.namespace, g.batch(n)))
			}
			write(t, path, all)
		})
		return
	}
	var want [][]response
	read(t, path, &want)
	ours := startTidemark(t)
	ours.setUp(t, g.namespace, g.stored)
	var all tally
	for n := range want {
		b := g.batch(n)
		without := ours.decide(t, b.requests)
		all.compare(t, b, without, ours.run(t, g.namespace, b), want[n])
	}
	all.report(t)
}

func write(t *testing.T, path string, all [][]response) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(file)
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	for _, part := range all {
		for _, a := range part {
			if err := e.Encode(a); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintln(z, "null")
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string, all *[][]response) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var part []response
	lines := bufio.NewScanner(z)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if lines.Text() == "null" {
			*all = append(*all, part)
			part = nil
			continue
		}
		var a response
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		part = append(part, a)
	}
	if err := lines.Err(); err != nil || len(*all) == 0 {
		t.Fatalf("no recorded responses: %v", err)
	}
}
