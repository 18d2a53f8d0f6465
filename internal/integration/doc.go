// Package integration tests the features of a whole server through its API, with a
// server in the test's own process. Tests of a single package are beside its code;
// those that need kubectl, Helm or controller-runtime are in the module below test/.
//
//	file                           what it tests
//	admission_test.go              admission plugins on and off, quotas, the Service of the server
//	admission_plugins_test.go      admission plugins with configurations: pod security, quotas, tolerations, images, namespaces
//	aggregation_test.go            extension servers: rights, users, discovery, namespaces; APIServices of custom resources
//	responses_test.go              the messages of errors, rows of bookmarks
//	bypass_test.go                 paths, verbs and upgrades that other servers authorized as something else
//	authorization_test.go          authorization modes, webhooks, AuthorizationConfiguration
//	audit_test.go                  audit events compared with recorded ones, modes, back ends that fail
//	changes_test.go                the history of objects: selectors, pages, rights, watches
//	close_test.go                  how long a server takes to close
//	connections_test.go            logs, exec, attach, port-forward and proxies of pods, services and nodes
//	control_test.go                the control API: worlds, manifests, users, histories, leases
//	control_certificate_test.go    certificates of users by the control API
//	control_clock_test.go          the clock of a world
//	control_faults_test.go         faults, records of requests, and waiting until a world is settled
//	control_replicas_test.go       several servers of one world
//	controllers_test.go            controllers on and off, as health checks and metrics show them
//	conversion_test.go             conversion webhooks of custom resources: caching, batches, stalls
//	conversion_address_test.go     addresses that a webhook may not have, its responses in errors
//	costs_test.go                  definitions whose columns, defaults and patterns cost more than their length
//	credentials_test.go            bootstrap tokens, limits and audiences of tokens of service accounts, the token webhook
//	crd_test.go                    definitions of custom resources: served at once, changed, removed
//	crd_documents_test.go          OpenAPI and status of definitions, also while they are removed
//	crd_late_test.go               objects whose definition is deleted while their body arrives
//	crd_room_test.go               the limit for all definitions together
//	crd_replaced_test.go           a definition replaced by another, selectable fields
//	crd_watch_test.go              watches of custom resources whose definition changes
//	crd_bench_test.go              benchmarks of large definitions
//	duplicate_members_test.go      duplicate members in JSON, YAML and patches
//	encryption_chaos_test.go       writes of Secrets while KMS plugins fail and the configuration changes
//	encryption_test.go             encryption at rest: rotation, reloads, KMS plugins, what is on the disk
//	identity_attacks_test.go       certificates, tokens and headers that claim another identity
//	expressions_test.go            CEL expressions that are refused when they are stored, administrators of devices
//	generated_labels_test.go       labels that the server adds, and which objects get them
//	fairness_test.go               flow schemas and priority levels: requests that wait or are rejected, and their metrics
//	impersonation_test.go          Impersonate-User and the other headers
//	instants_test.go               reads, watches and definitions as of an instant
//	inference_test.go              what responses reveal about objects that the user may not read
//	impersonation_random_test.go   random rights to impersonate, also beside kube-apiserver
//	mutating_policies_test.go      MutatingAdmissionPolicies, also compared with kube-apiserver
//	play_test.go                   changes of a directory that are played again
//	profiling_test.go              profiles of the process, and who gets them
//	numbers_test.go                the texts of numbers in custom resources, through every verb
//	tables_test.go                 tables of lists whose rows depend on each other
//	tracing_test.go                spans of requests, webhooks and the log, and who decides what is sampled
//	nodes_test.go                  nodes and NodeRestriction, rights on signers and on owners
//	oidc_test.go                   ID tokens, AuthenticationConfiguration and its reload, slow issuers
//	odd_writes_test.go             random writes of odd names, values and encodings
//	nested_metadata_test.go        metadata inside of specs, generations, names, repeated causes
//	ownership_test.go              which manager owns what a request sends and does not store, emptied values
//	patched_version_test.go        patches that name another version of the kind
//	policies_test.go               validating policies, their bindings and params in effect at once
//	policies_bench_test.go         Pods under validating policies, beside Pods without
//	quantities_test.go             quantities with large exponents: in bodies, in rules, in stored objects
//	rbac_test.go                   roles and bindings: decisions in effect at once, escalation
//	rbac_more_test.go              bootstrap roles, what users cannot see, informers with few rights
//	recursion_test.go              the deepest inputs with a small stack
//	recursion_bodies_test.go       the bodies, queries and expressions of recursion_test.go
//	rights_test.go                 what authors of policies and writers of claims need beyond the right to write
//	request_limits_test.go         limits of a request's size and nesting (docs/limits.md)
//	reviews_test.go                tokens of service accounts, access reviews, the issuer's documents
//	seats_test.go                  what clients hold before they are known, and while they send
//	secrets_test.go                nothing secret is logged; similar names are not mixed up
//	storage_quota_test.go          StorageMaxBytes
//	string_costs_test.go           long strings in every place that takes one: their CPU time grows as they do
//	stored_tokens_test.go          tokens in Secrets of the type kubernetes.io/service-account-token
//	subresources_test.go           scale, binding, eviction, resize, approval, connections
//	terminating_namespace_test.go  creates in a namespace that is being removed
//	typechecking_test.go           warnings in the status of ValidatingAdmissionPolicies
//	undecided_test.go              rights that the authorizers cannot decide
//	unenforced_test.go             warnings about objects that have no effect yet
//	values_test.go                 CEL expressions whose values are larger than their costs
//	webhooks_test.go               admission webhooks: what they are sent and what clients get, as kube-apiserver recorded it,
//	webhooks_cases_test.go         and the recorded cases
//	webhooks_convert_test.go       webhooks of kinds that are converted, and webhooks beside mutating policies
//	webhooks_hostile_test.go       what webhooks cannot do by patches and odd responses
//	webhooks_server_test.go        credentials and metrics of webhooks
//	webhooks_bench_test.go         what a webhook adds to a write
//	writers_test.go                concurrent writers of the same objects,
//	writers_check_test.go          and what their watches, lists and responses must show
//	scenario_test.go               requests and responses in files below testdata
//	requests_test.go               helpers: requests, steps, waiting for controllers
//
// Randomized tests print their seed and take it back with -seed.
package integration
