package fault_test

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/fault"
)

func add(t *testing.T, s *fault.Set, r fault.Rule) string {
	t.Helper()
	added, err := s.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	return added.ID
}

// fires returns which of n equal requests a fault happens to, with 1 for those.
func fires(s *fault.Set, q fault.Request, n int) []int {
	out := make([]int, n)
	for i := range out {
		if _, r := s.Pick(&q); r != nil {
			out[i] = 1
		}
	}
	return out
}

// TestRuleCheck: Add refuses rules that the API does not allow, or that cannot mean anything.
func TestRuleCheck(t *testing.T) {
	long := strings.Repeat("x", 1025)
	watch := []string{"watch"}
	for name, test := range map[string]struct {
		rule fault.Rule
		want string // in the error; empty: the rule is valid
	}{
		"no kind":                    {fault.Rule{}, `no fault ""`},
		"an unknown kind":            {fault.Rule{Fault: "explode"}, `no fault "explode"`},
		"an unknown verb":            {fault.Rule{Fault: fault.Drop, Verbs: []string{"apply"}}, `no verb "apply"`},
		"a conflict of a read":       {fault.Rule{Fault: fault.Conflict, Verbs: []string{"update", "get"}}, "conflict cannot happen to get"},
		"a conflict of a create":     {fault.Rule{Fault: fault.Conflict, Verbs: []string{"create"}}, "conflict cannot happen to create"},
		"a lost response of a watch": {fault.Rule{Fault: fault.LostResponse, Verbs: watch}, "lostResponse cannot happen to watch"},
		"a write that is gone":       {fault.Rule{Fault: fault.Gone, Verbs: []string{"create"}}, "gone cannot happen to create"},
		"a webhook of a list":        {fault.Rule{Fault: fault.WebhookTimeout, Verbs: []string{"list"}}, "webhookTimeout cannot happen to list"},
		"a long field":               {fault.Rule{Fault: fault.Drop, UserAgent: long}, "1024 bytes"},
		"a long webhook":             {fault.Rule{Fault: fault.WebhookTimeout, Webhook: long}, "1024 bytes"},
		"a probability above 1":      {fault.Rule{Fault: fault.Drop, Probability: 1.1}, "probability 1.1"},
		"a probability below 0":      {fault.Rule{Fault: fault.Drop, Probability: -0.1}, "probability -0.1"},
		"a probability of NaN":       {fault.Rule{Fault: fault.Drop, Probability: math.NaN()}, "probability NaN"},
		"no delay":                   {fault.Rule{Fault: fault.Latency}, "delayMilliseconds"},
		"a delay without latency":    {fault.Rule{Fault: fault.Drop, DelayMilliseconds: 1}, "delayMilliseconds"},
		"a negative delay":           {fault.Rule{Fault: fault.Latency, DelayMilliseconds: -1}, "delayMilliseconds -1"},
		"a long delay":               {fault.Rule{Fault: fault.Latency, DelayMilliseconds: 600_001}, "1 to 600000"},
		"no code":                    {fault.Rule{Fault: fault.Status}, "code 0"},
		"a code of the client":       {fault.Rule{Fault: fault.Status, Code: http.StatusNotFound}, "code 404"},
		"a code without status":      {fault.Rule{Fault: fault.Gone, Code: http.StatusGone}, "for status alone"},
		"Retry-After of a conflict":  {fault.Rule{Fault: fault.Conflict, RetryAfterSeconds: 1}, "for status alone"},
		"a negative Retry-After":     {fault.Rule{Fault: fault.Status, Code: 429, RetryAfterSeconds: -1}, "retryAfterSeconds -1"},
		"a long Retry-After":         {fault.Rule{Fault: fault.Status, Code: 429, RetryAfterSeconds: 3601}, "0 to 3600"},
		"events of all verbs":        {fault.Rule{Fault: fault.Drop, Events: 1}, "events"},
		"events of two verbs":        {fault.Rule{Fault: fault.Drop, Events: 1, Verbs: []string{"watch", "get"}}, "events"},
		"events without drop":        {fault.Rule{Fault: fault.Gone, Events: 1, Verbs: watch}, "events"},
		"a webhook of a drop":        {fault.Rule{Fault: fault.Drop, Webhook: "w"}, "for webhookTimeout alone"},

		"a name of a create": {fault.Rule{Fault: fault.Drop, Verbs: []string{"create"}, Resource: "pods", Name: "a"}, "no name"},

		"an eviction":          {fault.Rule{Fault: fault.Drop, Verbs: []string{"create"}, Resource: "pods/eviction", Name: "a"}, ""},
		"a name of all":        {fault.Rule{Fault: fault.Drop, Verbs: []string{"create"}, Name: "a"}, ""},
		"a delay at the limit": {fault.Rule{Fault: fault.Latency, DelayMilliseconds: 600_000}, ""},
		"a status":             {fault.Rule{Fault: fault.Status, Code: 503, RetryAfterSeconds: 3600}, ""},
		"events":               {fault.Rule{Fault: fault.Drop, Events: 1, Verbs: watch}, ""},
		"a webhook":            {fault.Rule{Fault: fault.WebhookTimeout, Webhook: "w", Verbs: []string{"delete"}}, ""},
		"a probability of 1":   {fault.Rule{Fault: fault.Gone, Probability: 1}, ""},
		"a field at the limit": {fault.Rule{Fault: fault.Conflict, Name: long[1:]}, ""},
	} {
		_, err := new(fault.Set).Add(test.rule)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (!errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: the error is %v, want an ErrInvalid with %q", name, err, test.want)
		}
	}
}

// TestSelection: a rule happens only to requests that all of its fields select, and that its kind can happen to.
func TestSelection(t *testing.T) {
	update := fault.Request{Verb: "update", Resource: "pods", Namespace: "shop", Name: "web", User: "alice", UserAgent: "manager/v1 (linux)"}
	with := func(change func(q *fault.Request)) fault.Request {
		q := update
		change(&q)
		return q
	}
	status := with(func(q *fault.Request) { q.Subresource = "status" })
	deployment := with(func(q *fault.Request) { q.Group, q.Resource = "apps", "deployments" })
	get := with(func(q *fault.Request) { q.Verb = "get" })
	list := with(func(q *fault.Request) { q.Verb = "list" })
	oldList := with(func(q *fault.Request) { q.Verb, q.Old = "list", true })
	for name, test := range map[string]struct {
		rule     fault.Rule
		hit, not []fault.Request
	}{
		"everything":      {fault.Rule{Fault: fault.Drop}, []fault.Request{update, status, deployment, get}, nil},
		"verbs":           {fault.Rule{Fault: fault.Drop, Verbs: []string{"get", "list"}}, []fault.Request{get, list}, []fault.Request{update}},
		"the core group":  {fault.Rule{Fault: fault.Drop, Group: "core"}, []fault.Request{update}, []fault.Request{deployment}},
		"another group":   {fault.Rule{Fault: fault.Drop, Group: "apps"}, []fault.Request{deployment}, []fault.Request{update}},
		"a resource":      {fault.Rule{Fault: fault.Drop, Resource: "pods"}, []fault.Request{update}, []fault.Request{status, deployment}},
		"a subresource":   {fault.Rule{Fault: fault.Drop, Resource: "pods/status"}, []fault.Request{status}, []fault.Request{update}},
		"subresources":    {fault.Rule{Fault: fault.Drop, Resource: "pods/*"}, []fault.Request{status, update}, []fault.Request{deployment}},
		"a namespace":     {fault.Rule{Fault: fault.Drop, Namespace: "shop"}, []fault.Request{update}, []fault.Request{with(func(q *fault.Request) { q.Namespace = "" })}},
		"a name":          {fault.Rule{Fault: fault.Drop, Name: "web"}, []fault.Request{update}, []fault.Request{with(func(q *fault.Request) { q.Name = "" })}},
		"a user":          {fault.Rule{Fault: fault.Drop, User: "alice"}, []fault.Request{update}, []fault.Request{with(func(q *fault.Request) { q.User = "alice2" })}},
		"a user agent":    {fault.Rule{Fault: fault.Drop, UserAgent: "manager/"}, []fault.Request{update}, []fault.Request{with(func(q *fault.Request) { q.UserAgent = "a manager/v1" })}},
		"two fields":      {fault.Rule{Fault: fault.Drop, Name: "web", User: "bob"}, nil, []fault.Request{update}},
		"conflict":        {fault.Rule{Fault: fault.Conflict}, []fault.Request{update}, []fault.Request{get, with(func(q *fault.Request) { q.Verb = "create" })}},
		"lost response":   {fault.Rule{Fault: fault.LostResponse}, []fault.Request{update}, []fault.Request{get, list}},
		"webhook timeout": {fault.Rule{Fault: fault.WebhookTimeout}, []fault.Request{update}, []fault.Request{get}},
		"gone": {fault.Rule{Fault: fault.Gone}, []fault.Request{oldList, with(func(q *fault.Request) { q.Verb, q.Old = "watch", true })},
			[]fault.Request{list, get, with(func(q *fault.Request) { q.Old = true })}},
	} {
		var s fault.Set
		id := add(t, &s, test.rule)
		for _, q := range test.hit {
			if _, r := s.Pick(&q); r == nil || r.Fault != test.rule.Fault {
				t.Errorf("%s: %+v gets %v", name, q, r)
			}
		}
		for _, q := range test.not {
			if _, r := s.Pick(&q); r != nil {
				t.Errorf("%s: %+v gets %s", name, q, r.Fault)
			}
		}
		hits := uint64(len(test.hit))
		if got := s.List()[0]; got.ID != id || got.Selected != hits || got.Fired != hits {
			t.Errorf("%s: %+v, want %d selected and fired", name, got, hits)
		}
	}
}

// TestTimesAndAfter: After requests are spared, then the fault happens Times times. Requests that are not
// selected do not count.
func TestTimesAndAfter(t *testing.T) {
	get := fault.Request{Verb: "get", Resource: "pods"}
	for _, test := range []struct {
		after, times uint64
		want         []int
	}{
		{0, 0, []int{1, 1, 1, 1, 1}},
		{0, 2, []int{1, 1, 0, 0, 0}},
		{3, 0, []int{0, 0, 0, 1, 1}},
		{1, 2, []int{0, 1, 1, 0, 0}},
	} {
		var s fault.Set
		add(t, &s, fault.Rule{Fault: fault.Drop, Resource: "pods", After: test.after, Times: test.times})
		s.Pick(&fault.Request{Verb: "get", Resource: "secrets"})
		if got := fires(&s, get, len(test.want)); !slices.Equal(got, test.want) {
			t.Errorf("after %d, times %d: %v, want %v", test.after, test.times, got, test.want)
		}
		if got := s.List()[0].Selected; got != uint64(len(test.want)) {
			t.Errorf("after %d, times %d: %d selected", test.after, test.times, got)
		}
	}
}

// TestProbability: a seed makes the same choices each time, and as many as the probability says. Times
// counts the faults that happen.
func TestProbability(t *testing.T) {
	get := fault.Request{Verb: "get"}
	const n = 2000
	choose := func(r fault.Rule) []int {
		var s fault.Set
		r.Fault = fault.Drop
		add(t, &s, r)
		return fires(&s, get, n)
	}
	sum := func(list []int) (total int) {
		for _, v := range list {
			total += v
		}
		return total
	}
	first := choose(fault.Rule{Probability: 0.25, Seed: 7})
	if !slices.Equal(first, choose(fault.Rule{Probability: 0.25, Seed: 7})) {
		t.Error("a seed makes two sequences")
	}
	if slices.Equal(first, choose(fault.Rule{Probability: 0.25, Seed: 8})) {
		t.Error("two seeds make one sequence")
	}
	if got := sum(first); got < n/5 || got > n*3/10 {
		t.Errorf("a probability of 0.25: %d of %d", got, n)
	}
	if got := sum(choose(fault.Rule{Probability: 1})); got != n {
		t.Errorf("a probability of 1: %d of %d", got, n)
	}
	if got := sum(choose(fault.Rule{Probability: 0.25, Times: 3})); got != 3 {
		t.Errorf("3 times with a probability: %d", got)
	}
	if got := sum(choose(fault.Rule{Probability: 0.5, After: 1990})); got > n-1990 {
		t.Errorf("after 1990 of %d: %d", n, got)
	}
}

// TestPick: delays add up until the first other fault that fires. Rules behind it do not count the request.
func TestPick(t *testing.T) {
	var s fault.Set
	if s.Active() || (*fault.Set)(nil).Active() {
		t.Error("an empty set is active")
	}
	add(t, &s, fault.Rule{Fault: fault.Latency, DelayMilliseconds: 20})
	add(t, &s, fault.Rule{Fault: fault.Status, Code: 503, After: 1})
	add(t, &s, fault.Rule{Fault: fault.Latency, DelayMilliseconds: 3})
	if !s.Active() {
		t.Error("a set with rules is not active")
	}
	get := fault.Request{Verb: "get"}
	if delay, r := s.Pick(&get); delay != 23*time.Millisecond || r != nil {
		t.Errorf("the first request: %v %v", delay, r)
	}
	if delay, r := s.Pick(&get); delay != 20*time.Millisecond || r == nil || r.Code != 503 {
		t.Errorf("the second request: %v %v", delay, r)
	}
	if got := s.List()[2]; got.Selected != 1 || got.Fired != 1 {
		t.Errorf("the last rule: %+v", got)
	}
}

// TestSet: rules are listed in their order with their own IDs, removed and cleared. A set is limited.
func TestSet(t *testing.T) {
	var s fault.Set
	verbs := []string{"update"}
	one := add(t, &s, fault.Rule{Fault: fault.Conflict, Verbs: verbs})
	two := add(t, &s, fault.Rule{Fault: fault.Drop})
	verbs[0] = "get" // the set has its own copy
	if list := s.List(); len(list) != 2 || list[0].ID != one || list[1].ID != two || list[0].Verbs[0] != "update" {
		t.Errorf("the list: %+v", list)
	}
	if err := s.Remove(one); err != nil {
		t.Error(err)
	}
	if err := s.Remove(one); !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("a second removal: %v", err)
	}
	if three := add(t, &s, fault.Rule{Fault: fault.Drop}); three == one || three == two {
		t.Errorf("the ID %s is used again", three)
	}
	s.Clear()
	if len(s.List()) != 0 || s.Active() {
		t.Error("a cleared set has rules")
	}
	only := ""
	for range fault.Max {
		only = add(t, &s, fault.Rule{Fault: fault.Drop})
	}
	if _, err := s.Add(fault.Rule{Fault: fault.Drop}); !errors.Is(err, fault.ErrTooMany) {
		t.Errorf("one rule more than %d: %v", fault.Max, err)
	}
	if err := s.Remove(only); err != nil {
		t.Error(err)
	}
	add(t, &s, fault.Rule{Fault: fault.Drop})
}

// TestDrops: only a rule that drops watches after no events breaks an open watch. It counts.
func TestDrops(t *testing.T) {
	watch := fault.Request{Verb: "watch", Resource: "pods", Old: true}
	for name, test := range map[string]struct {
		rule fault.Rule
		want bool
	}{
		"drop":               {fault.Rule{Fault: fault.Drop}, true},
		"drop of watches":    {fault.Rule{Fault: fault.Drop, Verbs: []string{"watch"}, Resource: "pods"}, true},
		"drop after events":  {fault.Rule{Fault: fault.Drop, Verbs: []string{"watch"}, Events: 1}, false},
		"drop of others":     {fault.Rule{Fault: fault.Drop, Resource: "secrets"}, false},
		"drop after a watch": {fault.Rule{Fault: fault.Drop, After: 1}, false},
		"gone":               {fault.Rule{Fault: fault.Gone}, false},
	} {
		var s fault.Set
		id := add(t, &s, test.rule)
		if got := s.Drops(id, &watch); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
		if s.Drops("none", &watch) {
			t.Errorf("%s: a rule that does not exist drops the watch", name)
		}
	}
	var s fault.Set
	id := add(t, &s, fault.Rule{Fault: fault.Drop, Times: 1})
	if !s.Drops(id, &watch) || s.Drops(id, &watch) {
		t.Error("a rule for one watch")
	}
	if _, r := s.Pick(&watch); r != nil {
		t.Error("the open watch does not count for new requests")
	}
}

// TestErr: the responses have the codes, reasons and delays that clients look at.
func TestErr(t *testing.T) {
	q := fault.Request{Verb: "update", Group: "apps", Resource: "deployments", Name: "web"}
	for name, test := range map[string]struct {
		rule  fault.Rule
		is    func(error) bool
		code  int32
		retry int
	}{
		"conflict":         {fault.Rule{Fault: fault.Conflict}, apierrors.IsConflict, 409, 0},
		"gone":             {fault.Rule{Fault: fault.Gone}, apierrors.IsResourceExpired, 410, 0},
		"webhook":          {fault.Rule{Fault: fault.WebhookTimeout, Webhook: "w.example"}, apierrors.IsInternalError, 500, 0},
		"429":              {fault.Rule{Fault: fault.Status, Code: 429, RetryAfterSeconds: 2}, apierrors.IsTooManyRequests, 429, 2},
		"500":              {fault.Rule{Fault: fault.Status, Code: 500}, apierrors.IsInternalError, 500, 0},
		"500 with a delay": {fault.Rule{Fault: fault.Status, Code: 500, RetryAfterSeconds: 3}, apierrors.IsServerTimeout, 500, 3},
		"503":              {fault.Rule{Fault: fault.Status, Code: 503, RetryAfterSeconds: 4}, apierrors.IsServiceUnavailable, 503, 4},
		"504":              {fault.Rule{Fault: fault.Status, Code: 504, RetryAfterSeconds: 5}, apierrors.IsTimeout, 504, 5},
	} {
		err := test.rule.Err(&q)
		var status apierrors.APIStatus
		if !test.is(err) || !errors.As(err, &status) || status.Status().Code != test.code {
			t.Errorf("%s: %v", name, err)
		}
		if seconds, _ := apierrors.SuggestsClientDelay(err); seconds != test.retry {
			t.Errorf("%s: the delay is %d seconds, want %d", name, seconds, test.retry)
		}
	}
	for _, kind := range []fault.Kind{fault.Latency, fault.Drop, fault.LostResponse} {
		if err := (&fault.Rule{Fault: kind}).Err(&q); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestConcurrentPicks: the fault happens exactly Times times, however many requests come at a time.
func TestConcurrentPicks(t *testing.T) {
	var s fault.Set
	add(t, &s, fault.Rule{Fault: fault.Drop, After: 10, Times: 5})
	var requests sync.WaitGroup
	for range 8 {
		requests.Add(1)
		go func() {
			defer requests.Done()
			fires(&s, fault.Request{Verb: "get"}, 10)
		}()
	}
	requests.Wait()
	if got := s.List()[0]; got.Selected != 80 || got.Fired != 5 {
		t.Errorf("%d selected, %d fired, want 80 and 5", got.Selected, got.Fired)
	}
}

// TestRecord: a set records requests up to its limit, with and without rules.
func TestRecord(t *testing.T) {
	var s fault.Set
	s.Record()
	if !s.Active() {
		t.Error("a set that records is not active")
	}
	long := strings.Repeat("é", 1000)
	for range fault.MaxRecorded + 2 {
		s.Pick(&fault.Request{Verb: "get", UserAgent: long})
	}
	all, missed := s.Recorded()
	if len(all) != fault.MaxRecorded || missed != 2 {
		t.Errorf("%d requests are recorded, and %d missed", len(all), missed)
	}
	if agent := all[0].UserAgent; len(agent) > 1024 || !strings.HasPrefix(long, agent) {
		t.Errorf("a user agent of %d bytes is recorded as one of %d", len(long), len(agent))
	}
	s.Clear()
	if !s.Active() {
		t.Error("the record ends with the rules")
	}
}
