package match

import (
	"encoding/json"
	"hash/maphash"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// remembered caches the labels of Namespaces, by the hash of the name. All servers of the process share
// it: the labels are a function of an immutable object.
var remembered [256]atomic.Pointer[labeled]

var seed = maphash.MakeSeed()

type labeled struct {
	object *store.Object
	labels map[string]string
}

// labelsOf returns the labels of a stored object, which must not be changed.
func labelsOf(o *store.Object) (map[string]string, error) {
	slot := &remembered[slotOf(o, len(remembered))]
	if l := slot.Load(); l != nil && l.object == o {
		return l.labels, nil
	}
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(o.Bytes(), &head); err != nil {
		return nil, err
	}
	slot.Store(&labeled{o, head.Metadata.Labels})
	return head.Metadata.Labels, nil
}

// slotOf returns the slot of an object in a cache of n slots.
func slotOf(o *store.Object, n int) int {
	return int(maphash.String(seed, o.Key) % uint64(n))
}
