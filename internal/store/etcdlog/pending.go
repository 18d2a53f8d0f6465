package etcdlog

import (
	"bytes"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// pending has the values of our own transactions under way. Follow takes an object from here instead of
// decoding it, if the stored bytes are equal.
type pending struct {
	mu    sync.Mutex
	all   map[string]pendingValue // by key of etcd
	bytes int
}

type pendingValue struct {
	stored  []byte
	decoded Decoded
}

// mostPending and mostPendingBytes limit the values. Those that Follow does not get, because compaction has
// overtaken it, would stay otherwise.
const mostPending, mostPendingBytes = 2048, 32 << 20

func (v *pendingValue) size() int { return len(v.stored) + len(v.decoded.Value) }

func (p *pending) add(t *store.Txn, r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]pendingValue{}
	}
	next := 0
	for i := range t.Writes {
		w := &t.Writes[i]
		if i+1 < len(t.Writes) && t.Writes[i+1].Next {
			continue
		}
		stored := &r.writes[next]
		next++
		if stored.value == nil {
			continue
		}
		v := pendingValue{stored.value, Decoded{Value: bytes.Clone(w.Value), RevisionAt: w.RevisionAt}}
		p.remove(stored.etcdKey)
		for key := range p.all {
			if len(p.all) < mostPending && p.bytes+v.size() <= mostPendingBytes {
				break
			}
			p.remove(key)
		}
		p.all[stored.etcdKey] = v
		p.bytes += v.size()
	}
}

// remove forgets the value of a key, if there is one. The caller holds mu.
func (p *pending) remove(etcdKey string) {
	if v, ok := p.all[etcdKey]; ok {
		p.bytes -= v.size()
		delete(p.all, etcdKey)
	}
}

// drop forgets the values of a transaction.
func (p *pending) drop(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range r.writes {
		if v, ok := p.all[r.writes[i].etcdKey]; ok && len(v.stored) > 0 && len(r.writes[i].value) > 0 && &v.stored[0] == &r.writes[i].value[0] {
			p.remove(r.writes[i].etcdKey)
		}
	}
}

// take returns the value that was stored as these bytes, and forgets it.
func (p *pending) take(etcdKey []byte, stored []byte) (Decoded, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.all[string(etcdKey)]
	if !ok || !bytes.Equal(v.stored, stored) {
		return Decoded{}, false
	}
	p.remove(string(etcdKey))
	return v.decoded, true
}
