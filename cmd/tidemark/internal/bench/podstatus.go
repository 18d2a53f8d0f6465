package bench

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// status is the URL of a running pod's status.
func (b *bed) status(ns string, pod int) *url.URL {
	u := b.object(ns, podsOf, podName(pod))
	u.Path += "/status"
	return u
}

var uidKey = []byte(`"uid":"`)

// uidIn is the uid of an object.
func uidIn(object []byte) string {
	uid, _ := textAfter(object, uidKey)
	return string(uid)
}

// podPatch is the status patch of a kubelet for a pod whose container restarted. The
// change is the restart count. The container is ready every second time.
type podPatch struct {
	change uint64
	uid    string
}

// wrote is a member of the status after the patch.
func (p podPatch) wrote() string { return fmt.Sprintf(`"restartCount":%d`, p.change) }

// strategic is the patch as a kubelet makes it of two statuses (about 1.3 KB).
func (p podPatch) strategic() []byte { return p.status(true, "") }

// first is the strategic patch of a pod that has no status yet.
func (p podPatch) first() []byte {
	return p.status(true, `,"hostIP":"192.0.2.10","hostIPs":[{"ip":"192.0.2.10"}],"observedGeneration":1,"phase":"Running",`+
		`"podIP":"198.51.100.7","podIPs":[{"ip":"198.51.100.7"}],"qosClass":"Burstable","startTime":"2026-01-01T00:00:00Z"`)
}

// merge is the same as a merge patch, with whole lists.
func (p podPatch) merge() []byte { return p.status(false, "") }

// podConditions are those that a kubelet keeps, and whether each depends on the
// container.
var podConditions = []struct {
	name  string
	ready bool
}{{"PodReadyToStartContainers", false}, {"Initialized", false}, {"Ready", true}, {"ContainersReady", true}, {"PodScheduled", false}}

func (p podPatch) status(strategic bool, more string) []byte {
	var order, conditions []string
	for _, c := range podConditions {
		order = append(order, fmt.Sprintf(`{"type":%q}`, c.name))
		if c.ready || more != "" || !strategic {
			conditions = append(conditions, p.condition(c.name, c.ready, more == "" && strategic))
		}
	}
	orderMember := ""
	if strategic {
		orderMember = `"$setElementOrder/conditions":[` + strings.Join(order, ",") + `],`
	}
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{%s"conditions":[%s],"containerStatuses":[`+
		`{"allocatedResources":{"cpu":"100m","memory":"128Mi"},"containerID":"containerd://7c1e5f0a9d3b42689f6d1c8e0b7a54f3d2e1908c7b6a5f4e3d2c1b0a99887766","image":"registry.example.com/shop/web:v1.1.1",`+
		`"imageID":"registry.example.com/shop/web@sha256:4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a","lastState":{},"name":"web","ready":%t,`+
		`"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},%s,"started":true,"state":{"running":{"startedAt":%q}}}]%s}}`,
		p.uid, orderMember, strings.Join(conditions, ","), p.isReady(), p.wrote(), p.time(), more)
}

func (p podPatch) isReady() bool { return p.change%2 == 0 }

// condition is one of a list: all of it, or as it differs from the one before.
func (p podPatch) condition(name string, ready, differs bool) string {
	const generation = `"observedGeneration":1,`
	switch {
	case !ready:
		return fmt.Sprintf(`{"lastTransitionTime":"2026-01-01T00:00:00Z",`+generation+`"status":"True","type":%q}`, name)
	case differs && p.isReady():
		return fmt.Sprintf(`{"lastTransitionTime":%q,"message":null,"reason":null,"status":"True","type":%q}`, p.time(), name)
	case p.isReady():
		return fmt.Sprintf(`{"lastTransitionTime":%q,`+generation+`"status":"True","type":%q}`, p.time(), name)
	}
	of := generation
	if differs {
		of = ""
	}
	return fmt.Sprintf(`{"lastTransitionTime":%q,"message":"containers with unready status: [web]",%s"reason":"ContainersNotReady","status":"False","type":%q}`, p.time(), of, name)
}

// time is when the change was, in seconds that differ.
func (p podPatch) time() string {
	const begin = 1_767_225_600 // 2026
	return time.Unix(begin+int64(p.change), 0).UTC().Format(time.RFC3339)
}
