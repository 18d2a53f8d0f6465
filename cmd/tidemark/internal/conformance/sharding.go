package conformance

import (
	"fmt"
	"hash/fnv"
	"net/url"
)

const shardingSource = "KEP-5866, Proposal"

var shardingChecks = []Check{
	{ID: "sharding.whole", Level: Must, Source: shardingSource,
		About: "A list without shardInfo has all objects, whatever shardSelector is.", run: shardingWhole},
	{ID: "sharding.split", Level: May, Source: shardingSource,
		About: "Two lists with one half of the hashes of UIDs each have all objects, each in its half, and name their selectors in shardInfo.", run: shardingSplit},
	{ID: "sharding.chunks", Level: May, Source: shardingSource,
		About: "The chunks of a shard have its objects, and shardInfo each.", run: shardingChunks},
	{ID: "sharding.watch", Level: May, Source: shardingSource,
		About: "A watch of a shard has the events of its objects alone.", run: shardingWatch},
}

// half is a half of the hashes of UIDs.
type half struct{ first, end string }

var lowHalf, highHalf = half{"0x0000000000000000", "0x8000000000000000"}, half{"0x8000000000000000", "0x10000000000000000"}

func (h half) selector() string {
	return fmt.Sprintf("shardRange(object.metadata.uid, '%s', '%s')", h.first, h.end)
}

// query is the selector as a parameter, with more.
func (h half) query(more string) string {
	return joinQuery("shardSelector="+url.QueryEscape(h.selector()), more)
}

// has reports whether an object is in the half: the hash is FNV-1a with 64 bits.
func (h half) has(o object) bool {
	sum := fnv.New64a()
	sum.Write([]byte(o.uid()))
	return (sum.Sum64() < 1<<63) == (h == lowHalf)
}

// sharded lists a half; the check is absent if the server ignores the selector.
func (p *probe) sharded(h half, more string) list {
	l := p.list(h.query(more))
	if l.shard == nil {
		p.absentf("a list with a shardSelector has no shardInfo")
	}
	if *l.shard != h.selector() {
		p.failf("shardInfo has the selector %q, want %q", *l.shard, h.selector())
	}
	return l
}

// mixed creates objects until there are two in each half.
func (p *probe) mixed() (all []object) {
	in := map[bool]int{}
	for i := 0; in[false] < 2 || in[true] < 2; i++ {
		o := p.create(fmt.Sprint(i), "1")
		in[lowHalf.has(o)]++
		all = append(all, o)
	}
	return all
}

// of returns those of a half.
func (h half) of(all []object) (some []object) {
	for _, o := range all {
		if h.has(o) {
			some = append(some, o)
		}
	}
	return some
}

func shardingWhole(p *probe) {
	all := p.mixed()
	if l := p.list(lowHalf.query("")); l.shard == nil {
		p.wantState("the list without shardInfo", p.mine(l), states(all...))
	}
}

func shardingSplit(p *probe) {
	all := p.mixed()
	for _, h := range []half{lowHalf, highHalf} {
		p.wantState("the shard from "+h.first, p.mine(p.sharded(h, "")), states(h.of(all)...))
	}
}

func shardingChunks(p *probe) {
	all := p.mixed()
	got := state{}
	for next, pages := "", 0; ; pages++ {
		query := "limit=1"
		if next != "" {
			query += "&continue=" + url.QueryEscape(next)
		}
		l := p.sharded(highHalf, query)
		for name, version := range p.mine(l) {
			got[name] = version
		}
		if next = l.next; next == "" {
			break
		}
		if pages == maxPages {
			p.failf("the list does not end after %d chunks", pages)
		}
	}
	p.wantState("the chunks of the shard", got, states(highHalf.of(all)...))
}

func shardingWatch(p *probe) {
	l := p.sharded(lowHalf, "")
	s := p.watch(lowHalf.query("resourceVersion=" + l.version))
	defer s.close()
	all := p.mixed()
	for i := len(all); !lowHalf.has(all[i-1]); i++ { // so that those of the other half come before the last one
		all = append(all, p.create(fmt.Sprint(i), "1"))
	}
	want := lowHalf.of(all)
	last := want[len(want)-1]
	got := state{}
	for _, e := range s.until("the last object of the shard", func(e event) bool { return e.Object.name() == last.name() }) {
		got[e.Object.name()] = e.Object.version()
	}
	p.wantState("the events of the shard", got, states(want...))
}
