// Package flowschema assigns requests to flows and priority levels by the stored FlowSchemas and
// PriorityLevelConfigurations, and estimates their work.
//
// A [Classifier] follows the state of the store, so a change of either kind is in effect with the
// next request. Schemas are tried in the order of their precedence, then of their names. An index
// by subject keeps a decision cheap: it looks up the user and each group of the user, and matches
// only rules that name one of them.
//
// Some behaviour does not depend on stored objects. The schemas and levels "exempt" and "catch-all"
// always exist: if they are not stored, their fixed specs apply, and their UIDs are empty. A schema
// that names a level that does not exist is ignored.
package flowschema

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"math"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// The collections that decide.
const (
	Schemas = "flowschemas.flowcontrol.apiserver.k8s.io"
	Levels  = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
)

// Level is a priority level.
type Level struct {
	fairness.Level
	// Seats is its nominal number of seats.
	Seats int
	// MaxWidth bounds the seats of one request; zero: the level sets no bound.
	MaxWidth int
}

// Schema is a flow schema.
type Schema struct {
	Name, UID string
	Level     *Level

	// Metrics count its requests.
	Metrics *fairness.FlowMetrics

	// distinguisher separates the flows of the schema; empty: it has one flow.
	distinguisher flowcontrolv1.FlowDistinguisherMethodType
	seed          uint64
	// UIDHeader and LevelUIDHeader are values of headers. They must not be changed.
	UIDHeader, LevelUIDHeader []string
}

// Flow is the flow of a request.
type Flow struct {
	*Schema
	// Distinguisher is the user or the namespace; empty if the schema or its level has one flow.
	Distinguisher string
	// Hash identifies the flow in its level.
	Hash uint64
}

// Config configures a Classifier.
type Config struct {
	Store *store.Store
	// Seats is the number of seats of all levels.
	Seats int
	// Gate gets the levels before a request gets one of them; nil: no gate does.
	Gate *fairness.Gate
}

// Classifier assigns requests to flows. It is safe for concurrent use; make one with New.
type Classifier struct {
	c   Config
	set *derived.Value[*set]
}

// New returns a classifier. The gate has its levels afterwards.
func New(c Config) *Classifier {
	m := &maker{Config: c}
	made := &Classifier{c, derived.New(m.make, Schemas, Levels)}
	made.Levels() // not every request is classified before it enters the gate
	return made
}

// maker makes the sets of a classifier, one at a time.
type maker struct {
	Config
	metrics map[metricsKey]*fairness.FlowMetrics
}

// metricsKey identifies the metrics of a schema at a level. They continue when the objects change.
type metricsKey struct{ level, schema string }

// make returns the set of stored schemas and levels, and configures the gate.
func (m *maker) make(now []store.Snapshot) *set {
	s := read(now[0], now[1], m.Seats)
	if m.Gate != nil {
		levels := make([]fairness.Level, len(s.levels))
		for i, l := range s.levels {
			levels[i] = l.Level
		}
		m.Gate.Configure(levels, m.Seats)
	}
	metrics := make(map[metricsKey]*fairness.FlowMetrics, len(s.schemas))
	for _, one := range s.schemas {
		name := metricsKey{one.Level.Name, one.Name}
		if one.Metrics = m.metrics[name]; one.Metrics == nil {
			one.Metrics = fairness.NewFlowMetrics(name.level, name.schema)
		}
		metrics[name] = one.Metrics
	}
	m.metrics = metrics
	return s
}

// Of returns the flow of a request, by the objects that are stored now. It does not allocate.
func (c *Classifier) Of(a *authz.Attributes) Flow {
	return c.set.At(c.c.Store.Any()).of(a)
}

// Levels returns the levels, ordered by name.
func (c *Classifier) Levels() []*Level {
	return c.set.At(c.c.Store.Any()).levels
}

// Schemas returns the schemas, in the order in which they are tried.
func (c *Classifier) Schemas() []*Schema {
	return c.set.At(c.c.Store.Any()).schemas
}

// set is the schemas and levels of one state.
type set struct {
	levels  []*Level
	schemas []*Schema
	index   index
	// catchAll takes the requests that no schema matches.
	catchAll *Schema
}

func (s *set) of(a *authz.Attributes) Flow {
	f := Flow{Schema: s.index.find(a)}
	if f.Schema == nil {
		f.Schema = s.catchAll
	}
	if f.Level.Queues > 1 {
		switch f.distinguisher {
		case flowcontrolv1.FlowDistinguisherMethodByUserType:
			f.Distinguisher = a.User.Name
		case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
			f.Distinguisher = a.Namespace
		}
	}
	f.Hash = mix(f.seed ^ maphash.String(seed, f.Distinguisher))
	return f
}

var seed = maphash.MakeSeed()

// mix spreads the bits of a hash (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// read returns the set of stored schemas and levels. Objects that cannot be read do not count.
func read(schemas, levels store.Snapshot, seats int) *set {
	s := &set{}
	stored := map[string]*Level{}
	for o := range levels.Scan("", "") {
		var c flowcontrolv1.PriorityLevelConfiguration
		if json.Unmarshal(o.Bytes(), &c) != nil {
			continue
		}
		if l := newLevel(&c); l != nil {
			stored[l.Name] = l
		}
	}
	all := map[string]*Level{}
	var found []*flowcontrolv1.FlowSchema
	for o := range schemas.Scan("", "") {
		f := &flowcontrolv1.FlowSchema{}
		if json.Unmarshal(o.Bytes(), f) == nil && stored[f.Spec.PriorityLevelConfiguration.Name] != nil {
			found = append(found, f)
		}
	}
	for name, l := range stored {
		all[name] = l
	}
	for _, c := range fixedLevels {
		if all[c.Name] == nil {
			all[c.Name] = newLevel(c)
		}
	}
	for _, l := range all {
		s.levels = append(s.levels, l)
	}
	slices.SortFunc(s.levels, func(a, b *Level) int { return cmp.Compare(a.Name, b.Name) })
	share(s.levels, seats)
	s.order(found, all)
	return s
}

// order puts schemas into the order in which they are tried. The fixed ones are added at their ends
// if they are not there.
func (s *set) order(found []*flowcontrolv1.FlowSchema, levels map[string]*Level) {
	slices.SortFunc(found, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	has := func(name string) bool {
		return slices.ContainsFunc(found, func(f *flowcontrolv1.FlowSchema) bool { return f.Name == name })
	}
	if !has(exempt.Name) {
		found = slices.Insert(found, 0, exempt)
	}
	if !has(catchAll.Name) {
		found = append(found, catchAll)
	}
	for order, f := range found {
		one := newSchema(f, levels[f.Spec.PriorityLevelConfiguration.Name])
		s.schemas = append(s.schemas, one)
		s.index.add(order, one, f.Spec.Rules)
		if f.Name == catchAll.Name {
			s.catchAll = one
		}
	}
}

func newSchema(f *flowcontrolv1.FlowSchema, l *Level) *Schema {
	s := &Schema{
		Name: f.Name, UID: string(f.UID), Level: l,
		seed:      maphash.String(seed, f.Name+"\x00"),
		UIDHeader: []string{string(f.UID)}, LevelUIDHeader: []string{l.UID},
	}
	if m := f.Spec.DistinguisherMethod; m != nil {
		s.distinguisher = m.Type
	}
	return s
}

// newLevel returns a level; nil if its type and its members contradict each other, which validation
// refuses.
func newLevel(c *flowcontrolv1.PriorityLevelConfiguration) *Level {
	l := &Level{Level: fairness.Level{Name: c.Name, UID: string(c.UID)}}
	switch {
	case c.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt && c.Name == exempt.Name:
		l.Exempt = true
		if e := c.Spec.Exempt; e != nil {
			l.Shares, l.LendablePercent = value(e.NominalConcurrencyShares), value(e.LendablePercent)
		}
		return l
	case c.Spec.Type != flowcontrolv1.PriorityLevelEnablementLimited, c.Spec.Limited == nil, c.Name == exempt.Name:
		return nil
	}
	limited := c.Spec.Limited
	l.Shares, l.LendablePercent = value(limited.NominalConcurrencyShares), value(limited.LendablePercent)
	if p := limited.BorrowingLimitPercent; p != nil {
		n := int(*p)
		l.BorrowingLimitPercent = &n
	}
	q := limited.LimitResponse.Queuing
	if queues := limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue; queues != (q != nil) {
		return nil
	}
	if q != nil {
		l.Queues, l.HandSize, l.QueueLength = min(int(q.Queues), mostQueues), int(q.HandSize), int(q.QueueLengthLimit)
		if l.Queues < 1 || l.HandSize < 1 || l.HandSize > l.Queues || l.QueueLength < 1 {
			return nil
		}
	}
	return l
}

// mostQueues bounds the queues of a level. The API allows ten million, which would take gigabytes. A
// hand of so many is small, so that fewer are enough.
const mostQueues = 16_384

func value(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

// widthPart is the largest part of its level's seats that a request of a level with queues gets.
const widthPart = 0.15

// share divides the seats among the levels. Their sum is a little larger, since parts are rounded up.
func share(levels []*Level, seats int) {
	sum := 0
	for _, l := range levels {
		sum += l.Shares
	}
	for _, l := range levels {
		if sum > 0 {
			l.Seats = int(math.Ceil(float64(seats) * float64(l.Shares) / float64(sum)))
		}
		if l.Queues > 0 {
			l.MaxWidth = max(1, min(int(math.Ceil(float64(l.Seats)*widthPart)), l.Seats/l.HandSize))
		}
	}
}
