package bench

import "net/http"

// turns assigns objects to clients. Each client writes its own objects in rotation, so two
// clients never write the same object at once.
type turns struct {
	objects int
	taken   []int // by each client
}

// turns deals out n objects, or one for each client when there are more clients.
func (b *bed) turns(clients, n int) *turns {
	if b.options.Clients > 0 {
		clients = b.options.Clients
	}
	return &turns{max(clients, min(n, b.options.Objects)), make([]int, clients)}
}

// next returns the number of the client's next object. Different clients may call it
// concurrently.
func (t *turns) next(c *client) int {
	clients := len(t.taken)
	own := (t.objects - c.number + clients - 1) / clients
	i := c.number + t.taken[c.number]%own*clients
	t.taken[c.number]++
	return i
}

// as makes the crew send the requests of another client program.
func (w *crew) as(header http.Header) *crew {
	for _, c := range w.clients {
		c.json = header
	}
	return w
}

// header returns the request headers of another client program.
func (b *bed) header(agent, contentType string) http.Header {
	h := b.json.Clone()
	h.Set("User-Agent", agent)
	h.Set("Content-Type", contentType)
	return h
}

// Kinds of bodies, and programs whose names become field managers.
const (
	strategicPatch = "application/strategic-merge-patch+json"
	mergePatch     = "application/merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"

	controllerAgent = "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/bench/system:serviceaccount:kube-system:replicaset-controller"
	kubeletAgent    = "kubelet/v1.36.3 (linux/amd64) kubernetes/bench"
	benchAgent      = "tidemark-bench"
)
