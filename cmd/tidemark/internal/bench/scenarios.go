package bench

import (
	"context"
	"strconv"
)

// scenario is one way to load a server.
type scenario struct {
	name string
	// loop and measures are for people; loop is what holds without options.
	loop, measures string
	// unit is what one operation is.
	unit string
	// variants are measured one after the other.
	variants []variant
}

// variant is a scenario with one setting.
type variant struct {
	// name stands behind the scenario's; empty when there is only one.
	name string
	// clients is the number that the name stands for; zero: it stands for something
	// else. Options.Clients leaves one of these variants.
	clients int
	// round prepares what is missing, measures once, and removes what the measurement
	// made.
	round func(ctx context.Context, b *bed) ([]row, error)
}

// row is a part of a round's result.
type row struct {
	name string // stands behind the scenario's and the variant's
	loop string
	unit string // empty: the scenario's
	Figures
}

// skipError says why a scenario cannot be measured on a server.
type skipError struct{ why string }

// Error implements error.
func (e *skipError) Error() string { return e.why }

// scenarios are all, in the order in which they are run.
var scenarios = []scenario{
	{"start", "one start at a time", "start to ready, by --start-command", "start", single(startRound)},
	{"idle-watch", "none", "memory of a watch that waits, with 1, 10 and 100 a connection, above that before the first of them", "watch", idleVariants},
	{"get", "closed, or open with --rate", "GET of a pod, the most recent", "get", single(getRound(""))},
	{"get-rv0", "closed, or open with --rate", "GET of a pod with resourceVersion=0: any state", "get", single(getRound("resourceVersion=0"))},
	{"list-identity", "closed", "LIST of all pods, JSON, not compressed", "list", byClients(listRound, 1, 8)},
	{"list-gzip", "closed", "the same, compressed: unchanged between lists, with 1 % of the pods changed, with all of them changed", "list", gzipVariants},
	{"list-protobuf", "closed", "LIST of all pods as they run, protobuf: compressed or not, unchanged between lists or with all of them changed", "list", representation{accept: acceptProtobuf}.variants()},
	{"list-table", "closed", "the same as kubectl prints it: a Table with the metadata of each", "list", representation{accept: acceptTable, query: "includeObject=Metadata"}.variants()},
	{"list-metadata", "closed", "the same, metadata alone: PartialObjectMetadataList", "list", representation{accept: acceptMetadata}.variants()},
	{"list-metadata-protobuf", "closed", "the same as protobuf", "list", representation{accept: acceptMetadataProtobuf}.variants()},
	{"list-page", "closed", "LIST of all pods in pages of 500", "whole list", single(pageRound)},
	{"list-exact", "closed", "LIST of all pods at an earlier resource version", "list", single(exactRound)},
	{"list-selector", "closed", "LIST by a label that 1 % of the pods have", "list", single(selectorRound)},
	{"list-stream", "closed", "streaming list: a watch with sendInitialEvents, to its bookmark", "list", single(streamRound)},
	{"create-configmap", "closed, or open with --rate", "creation of ConfigMaps of 1 KiB", "create", byClients(createConfigMaps, 1, 16, 64)},
	{"create-pod", "closed, or open with --rate", "creation of pods of 2 KB", "create", byClients(createPods, 1, 16, 64)},
	{"watch-100", "closed, or open with --rate", "events of ConfigMaps to 100 watchers, from the start of the write; CPU with that of the writes", "event and watcher", single(watchRound(100))},
	{"watch-1000", "closed, or open with --rate", "the same with 1,000 watchers", "event and watcher", single(watchRound(1000))},
	{"watch-5000", "closed, or open with --rate", "the same with 5,000 watchers", "event and watcher", single(watchRound(5000))},
	{"watch-10000", "closed, or open with --rate", "the same with 10,000 watchers", "event and watcher", single(watchRound(10_000))},
	{"watch-protobuf-100", "closed, or open with --rate", "events of ConfigMaps in protobuf to 100 watchers; CPU with that of the writes", "event and watcher", single(watchRoundAs(100, protobufEvents))},
	{"watch-protobuf-1000", "closed, or open with --rate", "the same with 1,000 watchers", "event and watcher", single(watchRoundAs(1000, protobufEvents))},
	{"watch-table-100", "closed, or open with --rate", "the same as Tables, with the metadata of each, to 100 watchers", "event and watcher", single(watchRoundAs(100, tableEvents))},
	{"watch-table-1000", "closed, or open with --rate", "the same with 1,000 watchers", "event and watcher", single(watchRoundAs(1000, tableEvents))},
	{"watch-unrelated", "closed, 1 client", "updates of one object, alone and beside 1,000 watchers of others", "update", unrelatedVariants},
	{"connect", "closed", "new TLS connection, GET, close: with a full handshake, and resumed", "connection", connectVariants},
	{"update", "closed, or open with --rate", "update of 1,000 ConfigMaps", "update", byClients(updateRound, 1, 16, 64)},
	{"update-contended", "closed", "GET and PUT of one ConfigMap by 8 clients, optimistically", "update", single(contendedRound)},
	{"update-pods", "closed, or open with --rate", "update of 1,000 pods with managed fields: all of what was read, with one annotation changed", "update", byClients(updatePodsRound, 1, 16)},
	{"patch-pods", "closed, or open with --rate", "patch of 1,000 pods with managed fields: their status as a kubelet does and as a merge patch, a label as a merge patch", "patch", patchPodsVariants},
	{"apply-configmap", "closed, or open with --rate", "server-side apply of 1,000 ConfigMaps, one field changed each time", "apply", byClients(applyRound(appliedConfigMap), 1, 16)},
	{"apply-deployment", "closed, or open with --rate", "the same with Deployments of 1.9 KB", "apply", byClients(applyRound(appliedDeployment), 1, 16)},
	{"apply-unchanged", "closed, or open with --rate", "server-side apply of what is there: nothing may change", "apply", applyUnchangedVariants},
	{"overwrite", "closed, 16 clients", "update of all pods, ten times each: what memory is like then", "update", single(overwriteRound)},
	{"delete-collection", "one at a time", "deletion of a collection: all pods, and 10,000 ConfigMaps; the latency is that of the whole", "object", deleteCollectionVariants},
	{"delete-namespace", "one at a time", "deletion of a namespace with 10,000 ConfigMaps, until it is gone", "object", single(deleteNamespaceRound)},
	{"crd-first-object", "one at a time", "definition of 4 KB, the same with a rule, and one of 40 KB with a rule, from the start of its creation until its first object is stored; it is tried every 10 ms", "definition", firstObjectVariants},
	{"crd-apply", "closed, 8 clients", "--definitions of 40 KB, applied: until they are written, until all are served; memory for each of them", "definition", single(applyDefinitionsRound)},
	{"crd-index", "one at a time", "one more definition of 40 KB beside --definitions, in a group of its own, until the aggregated discovery and the index of OpenAPI v3 have it; asked every 10 ms", "definition", indexVariants},
	{"custom-get", "closed, or open with --rate", "GET of a ConfigMap, and of a custom object with the same data", "get", customVariants(getAlike)},
	{"custom-list", "closed", "LIST of such objects", "list", customVariants(listAlike)},
	{"custom-list-gzip", "closed", "the same, compressed", "list", customVariants(listAlikeGzip)},
	{"custom-watch", "closed, or open with --rate", "events of such objects to 100 watchers; CPU with that of the writes", "event and watcher", customVariants(watchAlike)},
	{"custom-create", "closed, or open with --rate", "creation of custom objects with thirty members of a schema with 200 properties, and a rule in CEL", "create", byClients(createGadgets, 1, 16)},
	{"mixed", "lists closed; writes open, 50/s or --rate", "LIST, watch and writes, each alone and all at once", "", single(mixedRound)},
}

// single is a scenario without variants.
func single(round func(ctx context.Context, b *bed) ([]row, error)) []variant {
	return []variant{{round: round}}
}

// byClients is a variant for each number of clients.
func byClients(round func(ctx context.Context, b *bed, clients int) ([]row, error), numbers ...int) []variant {
	var all []variant
	for _, n := range numbers {
		all = append(all, variant{strconv.Itoa(n), n, func(ctx context.Context, b *bed) ([]row, error) { return round(ctx, b, n) }})
	}
	return all
}

// chosen are the variants that the options leave.
func (s scenario) chosen(o Options) []variant {
	if o.Clients == 0 || s.variants[0].clients == 0 {
		return s.variants
	}
	v := s.variants[0]
	v.name = strconv.Itoa(o.Clients) // the crew takes the number from the options
	return []variant{v}
}

// Scenario describes one for people.
type Scenario struct {
	Name, Loop, Measures string
}

// Scenarios lists what can be measured.
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

// rows is the result of a round with one row.
func (w *crew) rows(f Figures, err error) ([]row, error) {
	if err != nil {
		return nil, err
	}
	return []row{{loop: w.loop(), Figures: f}}, nil
}
