package bench

import (
	"context"
	"strconv"
)

// A scenario is one kind of load.
type scenario struct {
	name string
	// loop and measures are shown by "bench list"; options may change the loop.
	loop, measures string
	// unit names one operation.
	unit string
	// variants are measured one after another.
	variants []variant
}

// A variant is a scenario with one setting.
type variant struct {
	// name follows the scenario's name; empty for the only variant.
	name string
	// clients is the number of clients in the name, or zero. With Options.Clients, a
	// scenario has only one of these variants.
	clients int
	// round prepares the objects that it needs, measures once, and removes the objects that it
	// created.
	round func(ctx context.Context, b *bed) ([]row, error)
}

// A row is a part of a round's result.
type row struct {
	name string // follows the names of the scenario and the variant
	loop string
	unit string // empty: the scenario's
	Measurements
}

// A skipError is the reason why a scenario cannot be measured on a server.
type skipError struct{ why string }

// Error implements error.
func (e *skipError) Error() string { return e.why }

// scenarios lists all scenarios in the order in which they run.
var scenarios = []scenario{
	{"start", "one start at a time", "time from running --start-command to ready", "start", single(startRound)},
	{"idle-etcd", "none", "requests per second at etcd while the servers have no clients, and open watches at etcd (--etcd-metrics)", "request", single(idleEtcdRound)},
	{"idle-watch", "none", "memory per idle watch, with 1, 10 and 100 watches per connection", "watch", idleVariants},
	{"get", "closed, or open with --rate", "GET of a pod, most recent", "get", single(getRound(""))},
	{"get-rv0", "closed, or open with --rate", "GET of a pod with resourceVersion=0: any version", "get", single(getRound("resourceVersion=0"))},
	{"list-identity", "closed", "LIST of all pods as JSON, uncompressed", "list", byClients(listRound, 1, 8)},
	{"list-gzip", "closed", "LIST of all pods as JSON with gzip: between lists, no pods change, 1 % or all of them", "list", gzipVariants},
	{"list-protobuf", "closed", "LIST of all running pods as protobuf: with and without gzip, unchanged or all changed between lists", "list", representation{accept: acceptProtobuf}.variants()},
	{"list-table", "closed", "the same as a Table with metadata, as kubectl requests it", "list", representation{accept: acceptTable, query: "includeObject=Metadata"}.variants()},
	{"list-metadata", "closed", "the same as PartialObjectMetadataList", "list", representation{accept: acceptMetadata}.variants()},
	{"list-metadata-protobuf", "closed", "the same as PartialObjectMetadataList in protobuf", "list", representation{accept: acceptMetadataProtobuf}.variants()},
	{"list-page", "closed", "LIST of all pods in chunks of 500", "whole list", single(pageRound)},
	{"list-exact", "closed", "LIST of all pods at an exact older resourceVersion", "list", single(exactRound)},
	{"list-selector", "closed", "LIST by a label selector that matches 1 % of the pods", "list", single(selectorRound)},
	{"list-stream", "closed", "streaming list: a watch with sendInitialEvents, up to its bookmark", "list", single(streamRound)},
	{"list-fresh", "closed, 1 client", "LIST of a few ConfigMaps at the other server (--other-kubeconfig) after each write: it must have what was written; latency of the LIST, CPU including the writes", "list", single(listFreshRound)},
	{"create-configmap", "closed, or open with --rate", "create ConfigMaps of 1 KiB", "create", byClients(createConfigMaps, 1, 16, 64)},
	{"create-pod", "closed, or open with --rate", "create pods of 2 KB", "create", byClients(createPods, 1, 16, 64)},
	{"sandbox", "closed, or open with --rate", "the life of a sandbox of an agent: create a Service and a pod, bind it, run it as a kubelet does, delete both, with five Events and a Lease: 15 requests", "sandbox", single(sandboxRound)},
	{"watch-100", "closed, or open with --rate", "events of ConfigMaps to 100 watchers; latency from the start of the write, CPU including the writes", "event and watcher", single(watchRound(100))},
	{"watch-1000", "closed, or open with --rate", "the same with 1,000 watchers", "event and watcher", single(watchRound(1000))},
	{"watch-5000", "closed, or open with --rate", "the same with 5,000 watchers", "event and watcher", single(watchRound(5000))},
	{"watch-10000", "closed, or open with --rate", "the same with 10,000 watchers", "event and watcher", single(watchRound(10_000))},
	{"watch-protobuf-100", "closed, or open with --rate", "events of ConfigMaps as protobuf to 100 watchers; CPU including the writes", "event and watcher", single(watchRoundAs(100, protobufEvents))},
	{"watch-protobuf-1000", "closed, or open with --rate", "the same with 1,000 watchers", "event and watcher", single(watchRoundAs(1000, protobufEvents))},
	{"watch-table-100", "closed, or open with --rate", "events of ConfigMaps as Tables with metadata to 100 watchers; CPU including the writes", "event and watcher", single(watchRoundAs(100, tableEvents))},
	{"watch-table-1000", "closed, or open with --rate", "the same with 1,000 watchers", "event and watcher", single(watchRoundAs(1000, tableEvents))},
	{"watch-unrelated", "closed, 1 client", "update one object, with no watchers and with 1,000 watchers of other objects", "update", unrelatedVariants},
	{"connect", "closed", "open a TLS connection, GET, close: full handshake and session resumption", "connection", connectVariants},
	{"update", "closed, or open with --rate", "update 1,000 ConfigMaps", "update", byClients(updateRound, 1, 16, 64)},
	{"update-contended", "closed", "GET and PUT of one ConfigMap by 8 clients, with optimistic concurrency", "update", single(contendedRound)},
	{"update-pods", "closed, or open with --rate", "update 1,000 pods with managed fields: the whole object, with one annotation changed", "update", byClients(updatePodsRound, 1, 16)},
	{"patch-pods", "closed, or open with --rate", "patch 1,000 pods with managed fields: the status as a kubelet does and as a merge patch, a label as a merge patch", "patch", patchPodsVariants},
	{"apply-configmap", "closed, or open with --rate", "server-side apply of 1,000 ConfigMaps, changing one field", "apply", byClients(applyRound(appliedConfigMap), 1, 16)},
	{"apply-deployment", "closed, or open with --rate", "the same with Deployments of 1.9 KB", "apply", byClients(applyRound(appliedDeployment), 1, 16)},
	{"apply-unchanged", "closed, or open with --rate", "repeated server-side apply that changes nothing", "apply", applyUnchangedVariants},
	{"overwrite", "closed, 16 clients", "update all pods ten times: memory afterwards", "update", single(overwriteRound)},
	{"delete-collection", "one at a time", "deletecollection of all pods, and of 10,000 ConfigMaps; latency of the whole request", "object", deleteCollectionVariants},
	{"delete-namespace", "one at a time", "delete a namespace with 10,000 ConfigMaps, until it is gone", "object", single(deleteNamespaceRound)},
	{"crd-first-object", "one at a time", "CRD create to first custom resource, wall time: a CRD of 4 KB, the same with a CEL rule, and one of 40 KB with a rule; polled every 10 ms", "definition", firstObjectVariants},
	{"crd-other-server", "one at a time", "response to a CRD create to first custom resource at the other server (--other-kubeconfig), wall time: a CRD of 4 KB; polled every millisecond", "definition", single(otherServerRound)},
	{"crd-apply", "closed, 8 clients", "apply --definitions CRDs of 40 KB: time until all are stored and until all are served, memory per CRD", "definition", single(applyDefinitionsRound)},
	{"crd-index", "one at a time", "create a CRD of 40 KB on a server with --definitions CRDs: time until aggregated discovery and the OpenAPI v3 index show it; polled every 10 ms", "definition", indexVariants},
	{"custom-get", "closed, or open with --rate", "GET of a ConfigMap, and of a custom resource with the same data", "get", customVariants(getAlike)},
	{"custom-list", "closed", "LIST of these objects", "list", customVariants(listAlike)},
	{"custom-list-gzip", "closed", "the same with gzip", "list", customVariants(listAlikeGzip)},
	{"custom-watch", "closed, or open with --rate", "events of these objects to 100 watchers; CPU including the writes", "event and watcher", customVariants(watchAlike)},
	{"custom-create", "closed, or open with --rate", "create custom resources with 30 of the 200 properties in their schema, and a CEL rule", "create", byClients(createGadgets, 1, 16)},
	{"access", "closed, or open with --rate", "GET of a pod and create of a ConfigMap, by a member of system:masters and by a user with one of 10,000 RoleBindings; the client impersonates both", "request", accessVariants},
	{"admission", "closed, or open with --rate", "create pods of 2 KB: without policies and webhooks, under three validating policies of ten expressions each, with a call of a webhook, and beside 50 writes whose webhook does not respond; the webhook is in the process of the benchmark", "create", admissionVariants},
	{"overload", "lists closed, 500 clients; others open, 50/s or --rate", "create of a ConfigMap by a user, and GET of a pod by a member of system:masters: alone, and while another user lists all pods", "", single(overloadRound)},
	{"slow-readers", "10 clients", "memory while clients read lists of 100 MB at 1 MB/s", "client", single(slowRound)},
	{"mixed", "lists closed; writes open, 50/s or --rate", "LIST, watch and writes: each alone, then all at once", "", single(mixedRound)},
	{"outage", "closed, 4 clients", "create ConfigMaps while --outage-command makes something fail: longest time without an acknowledged write, failed requests, watches that list again; no acknowledged write may be lost", "create", single(outageRound)},
}

// single returns the variants of a scenario that has none.
func single(round func(ctx context.Context, b *bed) ([]row, error)) []variant {
	return []variant{{round: round}}
}

// byClients returns a variant for each number of clients.
func byClients(round func(ctx context.Context, b *bed, clients int) ([]row, error), numbers ...int) []variant {
	var all []variant
	for _, n := range numbers {
		all = append(all, variant{strconv.Itoa(n), n, func(ctx context.Context, b *bed) ([]row, error) { return round(ctx, b, n) }})
	}
	return all
}

// chosen returns the variants to run with the options.
func (s scenario) chosen(o Options) []variant {
	if o.Clients == 0 || s.variants[0].clients == 0 {
		return s.variants
	}
	v := s.variants[0]
	v.name = strconv.Itoa(o.Clients) // the crew takes the number from the options
	return []variant{v}
}

// Scenario describes a scenario to users.
type Scenario struct {
	Name, Loop, Measures string
}

// Scenarios lists the scenarios.
func Scenarios() []Scenario {
	all := make([]Scenario, len(scenarios))
	for i, s := range scenarios {
		all[i] = Scenario{s.name, s.loop, s.measures}
	}
	return all
}

func names() []string {
	all := make([]string, len(scenarios))
	for i, s := range scenarios {
		all[i] = s.name
	}
	return all
}

// rows returns the result of a round that has one row.
func (w *crew) rows(f Measurements, err error) ([]row, error) {
	if err != nil {
		return nil, err
	}
	return []row{{loop: w.loop(), Measurements: f}}, nil
}
