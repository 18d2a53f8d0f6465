package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// mark is once in every object of the benchmark, in JSON and in protobuf: items are counted by it.
// No server puts it anywhere else, as it would a key.
const mark = "~tidemark-bench~"

var markBytes = []byte(mark)

// slots is how many values the label "slot" has: a selector of one finds 1 % of
// the objects.
const slots = 100

// objects writes the same objects for the same seed, byte for byte as client-go
// encodes them. It is safe for concurrent use.
type objects struct {
	seed uint64
	// Bytes that pods, ConfigMaps and Deployments are made larger by.
	pad, configMapPad, deploymentPad int
}

// random returns n characters that depend on the seed and the number.
func (o objects) random(number uint64, n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" // 6 bits each
	r := rand.NewPCG(o.seed, number)
	b := make([]byte, 0, n)
	for len(b) < n {
		word := r.Uint64()
		for range min(10, n-len(b)) {
			b = append(b, letters[word%uint64(len(letters))])
			word >>= 6
		}
	}
	return b
}

// padText is repeated to make a pod larger. It compresses like the managed fields and defaults that
// it replaces.
const padText = `f:metadata f:labels f:app.kubernetes.io/name f:spec f:containers k:name:web f:env f:image f:livenessProbe f:httpGet f:path f:port f:scheme `

const padKey = `,"bench.tidemark.dev/pad":""`

// padding is a member of annotations of n bytes, behind another one, or none when n
// is too small.
func padding(n int) string {
	n -= len(padKey)
	if n <= 0 {
		return ""
	}
	text := strings.Repeat(padText, n/len(padText)+1)[:n]
	return padKey[:len(padKey)-1] + text + `"`
}

// pod is about 2 KB of JSON, as a Deployment would make it. No scheduler takes it.
func (o objects) pod(name string, number int) []byte {
	return o.changedPod(name, number, 0)
}

// changedPod is the same pod with another annotation for every change.
func (o objects) changedPod(name string, number int, change uint64) []byte {
	hash := o.random(uint64(number), 64)
	checksum := o.random(uint64(number)+change<<32, checksumBytes)
	return fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,`+
		`"labels":{"app.kubernetes.io/instance":"web-%d","app.kubernetes.io/managed-by":"bench","app.kubernetes.io/name":"web","app.kubernetes.io/part-of":"shop","pod-template-hash":"5c689d88bb","slot":"%d"},`+
		`"annotations":{"bench.tidemark.dev/mark":"%s"%s,"checksum/config":"%s","prometheus.io/port":"8080","prometheus.io/scrape":"true"}},`+
		`"spec":{"volumes":[{"name":"config","configMap":{"name":"web-config"}},{"name":"scratch","emptyDir":{"sizeLimit":"64Mi"}}],`+
		`"containers":[{"name":"web","image":"registry.example.com/shop/web:v1.%d.%d",`+containerRest+
		`"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"POD_IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},{"name":"DATABASE_URL","value":"postgres://shop-db.example.com:5432/shop"},{"name":"SESSION_KEY","value":"%s"}],`+
		containerEnd+`}],`+
		`"terminationGracePeriodSeconds":30,"serviceAccountName":"default","automountServiceAccountToken":false,"schedulerName":"bench-has-none",`+
		`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},"status":{}}`,
		name, number%1000, number%slots, mark, padding(o.pad), checksum, number%7, number%50, hash[:32])
}

// checksumBytes is the length of the annotation that changes with a pod.
const checksumBytes = 64

// The parts that the containers of pods and of Deployments share, before and after their
// environment.
const (
	containerRest = `"args":["--listen=:8080","--log-level=info","--config=/etc/web/config.yaml"],` +
		`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}],`
	containerEnd = `"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},` +
		`"volumeMounts":[{"name":"config","readOnly":true,"mountPath":"/etc/web"},{"name":"scratch","mountPath":"/tmp"}],` +
		`"livenessProbe":{"httpGet":{"path":"/livez","port":"http"},"initialDelaySeconds":5,"periodSeconds":10},` +
		`"readinessProbe":{"httpGet":{"path":"/readyz","port":"http"},"periodSeconds":5},` +
		`"securityContext":{"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false}`
)

// deployment returns an applied configuration of about 1.9 KB, with another image for
// each change. It is paused, so that no controller acts on it.
func (o objects) deployment(name string, number int, change uint64) []byte {
	labels := fmt.Sprintf(`"app.kubernetes.io/instance":"web-%d","app.kubernetes.io/name":"web","app.kubernetes.io/part-of":"shop"`, number%1000)
	return fmt.Appendf(nil, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":%q,"labels":{%s},"annotations":{"bench.tidemark.dev/mark":"%s"%s}},`+
		`"spec":{"replicas":3,"selector":{"matchLabels":{%s}},`+
		`"template":{"metadata":{"labels":{%s},"annotations":{"prometheus.io/port":"8080","prometheus.io/scrape":"true"}},`+
		`"spec":{"volumes":[{"name":"config","configMap":{"name":"web-config"}},{"name":"scratch","emptyDir":{"sizeLimit":"64Mi"}}],`+
		`"containers":[{"name":"web",%s,`+containerRest+
		`"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"DATABASE_URL","value":"postgres://shop-db.example.com:5432/shop"}],`+
		containerEnd+`}],"terminationGracePeriodSeconds":30,"serviceAccountName":"default"}},`+
		`"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":0,"maxSurge":"25%%"}},"revisionHistoryLimit":3,"paused":true}}`,
		name, labels, mark, padding(o.deploymentPad), labels, labels, imageOf(change))
}

// imageOf is the member of a Deployment that a change is.
func imageOf(change uint64) string {
	return fmt.Sprintf(`"image":"registry.example.com/shop/web:v1.0.%d"`, change)
}

// configMapBytes is the size of a ConfigMap's data, about.
const configMapBytes = 1 << 10

// configMap is about 1 KiB, half of it random. Sent goes into it, for the latency
// of events; the resource version may be empty.
func (o objects) configMap(name string, number uint64, sent int64, resourceVersion string) []byte {
	const text = "server.address=:8080\\nserver.timeout=30s\\nlog.level=info\\ncache.size=256Mi\\nfeature.checkout=enabled\\nretry.limit=5\\n"
	if resourceVersion != "" {
		resourceVersion = `,"resourceVersion":"` + resourceVersion + `"`
	}
	return fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q%s,"labels":{"app.kubernetes.io/name":"web","slot":"%d"},"annotations":{"bench.tidemark.dev/mark":"%s"%s}},`+
		`"data":{"app.properties":"%s",%s,"token":"%s"}}`,
		name, resourceVersion, number%slots, mark, padding(o.configMapPad), text+text+text, sentMember(sent), o.random(number, configMapBytes/2))
}

// sentMember is the member of a ConfigMap that is a time, or any other number.
func sentMember(sent int64) string { return fmt.Sprintf(`"sent":"%d"`, sent) }
