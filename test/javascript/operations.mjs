// Operations that @kubernetes/client-node documents, against the server of $KUBECONFIG in the
// namespace $NAMESPACE. The output has a line for each step: what the client returned or threw, as
// JSON without what differs from run to run.
import * as k8s from '@kubernetes/client-node';

const kc = new k8s.KubeConfig();
kc.loadFromDefault();
const namespace = process.env.NAMESPACE;
const core = kc.makeApiClient(k8s.CoreV1Api);
const apps = kc.makeApiClient(k8s.AppsV1Api);
const definitions = kc.makeApiClient(k8s.ApiextensionsV1Api);
const custom = kc.makeApiClient(k8s.CustomObjectsApi);
const objects = k8s.KubernetesObjectApi.makeApiClient(kc);
const as = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);

const dropped = new Set(['uid', 'resourceVersion', 'creationTimestamp', 'time', 'lastTransitionTime', 'clusterIP', 'clusterIPs', 'selfLink', 'token', 'expirationTimestamp', 'gitVersion', 'gitCommit', 'gitTreeState', 'buildDate', 'goVersion', 'platform', 'compiler', 'username', 'extra', 'groups']);

function plain(v) {
  if (v instanceof Date) return v.getUTCFullYear() > 2024 ? '<time>' : v.toISOString();
  if (typeof v === 'string') return v.replaceAll(namespace, '<namespace>').replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, '<uid>').replace(/"resourceVersion\\*":\\*"\d+/g, '"resourceVersion":"<version>').replace(/20[2-9]\d-[0-9-]+T[0-9:]+Z/g, '<time>');
  if (Array.isArray(v)) return v.map(plain);
  if (v === null || typeof v !== 'object') return v;
  const out = {};
  for (const name of Object.keys(v).sort()) {
    if (dropped.has(name) || v[name] === undefined) continue;
    out[plain(name)] = name === '_continue' || name === 'continue' ? '<continue>' : plain(v[name]);
  }
  return out;
}

const print = (name, v) => console.log(`${name}: ${JSON.stringify(plain(v))}`);

async function step(name, call) {
  try {
    const got = await call();
    print(name, got);
    return got;
  } catch (e) {
    if (e.code === undefined || typeof e.code !== 'number') throw e;
    let body = e.body;
    try { body = JSON.parse(e.body); } catch { /* it is parsed already, or text */ }
    print(name, { thrown: e.code, body });
  }
}

const configMap = (name, more) => ({ metadata: { name, labels: { app: 'x' }, ...more }, data: { k: '1' } });
const container = { name: 'c', image: 'nginx', resources: { requests: { cpu: '500m', memory: '1Gi' } } };
const deployment = (name) => ({
  apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name },
  spec: { replicas: 2, selector: { matchLabels: { app: name } }, template: { metadata: { labels: { app: name } }, spec: { containers: [container] } } },
});

async function basics() {
  await step('version', () => kc.makeApiClient(k8s.VersionApi).getCode());
  await step('api versions', async () => (await kc.makeApiClient(k8s.ApisApi).getAPIVersions()).groups.map((g) => g.name).filter((name) => !/\.(com|net|dev)$/.test(name)).sort());
  await step('resources', async () => (await core.getAPIResources()).resources.map((r) => r.name));
  await step('create', () => core.createNamespacedConfigMap({ namespace, body: configMap('a') }));
  await step('create again', () => core.createNamespacedConfigMap({ namespace, body: configMap('a') }));
  await step('create nothing', () => core.createNamespacedConfigMap({ namespace, body: {} }));
  await step('create an invalid name', () => core.createNamespacedConfigMap({ namespace, body: configMap('A_') }));
  await step('dry run', () => core.createNamespacedConfigMap({ namespace, body: configMap('dry'), dryRun: 'All' }));
  await step('strict', () => core.createNamespacedConfigMap({ namespace, fieldValidation: 'Sloppy', body: configMap('s') }));
  await step('generated name', async () => /^g-[a-z0-9]{5}$/.test((await core.createNamespacedConfigMap({ namespace, body: { metadata: { generateName: 'g-' } } })).metadata.name));
  const read = await step('read', () => core.readNamespacedConfigMap({ namespace, name: 'a' }));
  await step('read nothing', () => core.readNamespacedConfigMap({ namespace, name: 'zz' }));
  await step('replace', () => core.replaceNamespacedConfigMap({ namespace, name: 'a', body: { ...read, data: { k: '2' } } }));
  await step('conflict', () => core.replaceNamespacedConfigMap({ namespace, name: 'a', body: { ...read, data: { k: '3' } } }));
  await step('replace another', () => core.replaceNamespacedConfigMap({ namespace, name: 'b', body: read }));
  await step('binary data', () => core.createNamespacedSecret({ namespace, body: { metadata: { name: 's' }, data: { a: 'AAE=' }, stringData: { b: 'é' } } }));
  await step('bad base64', () => core.createNamespacedSecret({ namespace, body: { metadata: { name: 't' }, data: { a: '=' } } }));
  await step('service account', () => core.createNamespacedServiceAccount({ namespace, body: { metadata: { name: 'robot' } } }));
  await step('token', () => core.createNamespacedServiceAccountToken({ namespace, name: 'robot', body: { spec: { audiences: ['a'], expirationSeconds: 600 } } }));
  await step('service', () => core.createNamespacedService({ namespace, body: { metadata: { name: 'web' }, spec: { selector: { app: 'x' }, ports: [{ port: 80, targetPort: 'http' }] } } }));
  await step('access review', async () => (await kc.makeApiClient(k8s.AuthorizationV1Api).createSelfSubjectAccessReview({ body: { spec: { resourceAttributes: { namespace, verb: 'list', resource: 'pods' } } } })).status);
}

async function lists() {
  for (let i = 0; i < 7; i++) await core.createNamespacedConfigMap({ namespace, body: configMap(`page-${i}`, { labels: { page: String(i % 2), list: 'y' } }) });
  const names = (list) => list.items.map((i) => i.metadata.name);
  let token;
  do {
    const page = await core.listNamespacedConfigMap({ namespace, labelSelector: 'list=y', limit: 3, _continue: token });
    print('page', { names: names(page), kind: page.kind, metadata: page.metadata });
    token = page.metadata._continue;
  } while (token);
  await step('bad token', () => core.listNamespacedConfigMap({ namespace, limit: 3, _continue: 'x' }));
  await step('label selector', async () => names(await core.listNamespacedConfigMap({ namespace, labelSelector: 'page in (1),list' })));
  await step('field selector', async () => names(await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=page-2' })));
  await step('bad label selector', () => core.listNamespacedConfigMap({ namespace, labelSelector: 'a=(' }));
  await step('bad field selector', () => core.listNamespacedConfigMap({ namespace, fieldSelector: 'data.k=1' }));
  await step('any version', async () => (await core.listNamespacedConfigMap({ namespace, labelSelector: 'list=y', resourceVersion: '0' })).kind);
  await step('bad match', () => core.listNamespacedConfigMap({ namespace, resourceVersionMatch: 'Exact' }));
  await step('all namespaces', async () => names(await core.listConfigMapForAllNamespaces({ fieldSelector: `metadata.namespace=${namespace}`, labelSelector: 'list=y' })));
  await step('delete collection', () => core.deleteCollectionNamespacedConfigMap({ namespace, labelSelector: 'list=y' }));
  await step('none', async () => names(await core.listNamespacedConfigMap({ namespace, labelSelector: 'list=y' })));
}

async function patches() {
  const name = 'web';
  const patch = (what, strategy, body, more) => step(what, () => apps.patchNamespacedDeployment({ namespace, name, body, ...more }, as(strategy)));
  await step('deployment', () => apps.createNamespacedDeployment({ namespace, body: deployment(name) }));
  await patch('json patch', k8s.PatchStrategy.JsonPatch, [{ op: 'replace', path: '/spec/replicas', value: 3 }, { op: 'add', path: '/metadata/labels', value: { a: 'b' } }]);
  await patch('json patch, test', k8s.PatchStrategy.JsonPatch, [{ op: 'test', path: '/spec/replicas', value: 9 }]);
  await patch('json patch, no path', k8s.PatchStrategy.JsonPatch, [{ op: 'remove', path: '/spec/nothing' }]);
  await patch('merge patch', k8s.PatchStrategy.MergePatch, { metadata: { labels: { a: null, c: 'd' } } });
  await patch('strategic merge patch', k8s.PatchStrategy.StrategicMergePatch, { spec: { template: { spec: { containers: [{ name: 'side', image: 'busybox' }] } } } });
  await patch('strategic merge patch, delete', k8s.PatchStrategy.StrategicMergePatch, { spec: { template: { spec: { containers: [{ name: 'side', $patch: 'delete' }] } } } });
  await step('scale', () => apps.readNamespacedDeploymentScale({ namespace, name }));
  await step('patch of scale', () => apps.patchNamespacedDeploymentScale({ namespace, name, body: { spec: { replicas: 5 } } }, as(k8s.PatchStrategy.MergePatch)));
  await step('patch of status', () => apps.patchNamespacedDeploymentStatus({ namespace, name, body: { status: { replicas: 1 } } }, as(k8s.PatchStrategy.MergePatch)));
  await patch('invalid patch', k8s.PatchStrategy.MergePatch, { spec: { replicas: -1 } });
  await patch('wrong type', k8s.PatchStrategy.MergePatch, { spec: { replicas: 'x' } });
  const applied = (replicas) => ({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name }, spec: { replicas } });
  await patch('apply without a manager', k8s.PatchStrategy.ServerSideApply, applied(4));
  await patch('apply with a conflict', k8s.PatchStrategy.ServerSideApply, applied(4), { fieldManager: 'js' });
  await patch('apply by force', k8s.PatchStrategy.ServerSideApply, applied(4), { fieldManager: 'js', force: true });
  await patch('apply without the field', k8s.PatchStrategy.ServerSideApply, { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name } }, { fieldManager: 'js' });
  await step('delete', () => apps.deleteNamespacedDeployment({ namespace, name, propagationPolicy: 'Background' }));
}

async function types() {
  const coordination = kc.makeApiClient(k8s.CoordinationV1Api);
  const at = new k8s.V1MicroTime('2020-01-02T03:04:05.678Z');
  await step('microtime', () => coordination.createNamespacedLease({ namespace, body: { metadata: { name: 'l' }, spec: { holderIdentity: 'h', leaseDurationSeconds: 15, acquireTime: at, renewTime: at } } }));
  const lease = await coordination.readNamespacedLease({ namespace, name: 'l' });
  await step('microtime again', () => coordination.replaceNamespacedLease({ namespace, name: 'l', body: { ...lease, spec: { ...lease.spec, leaseTransitions: 1 } } }));
  await step('event', () => core.createNamespacedEvent({ namespace, body: { metadata: { name: 'e' }, involvedObject: { kind: 'ConfigMap', name: 'a', namespace }, reason: 'r', message: 'm', firstTimestamp: new Date('2020-01-02T03:04:05Z'), count: 1, type: 'Normal' } }));
  const pod = { metadata: { name: 'p', labels: { app: 'p' } }, spec: { containers: [{ ...container, ports: [{ containerPort: 80 }], livenessProbe: { httpGet: { path: '/', port: 'http' } } }], automountServiceAccountToken: false } };
  await step('pod', () => core.createNamespacedPod({ namespace, body: pod }));
  await step('pod without containers', () => core.createNamespacedPod({ namespace, body: { metadata: { name: 'q' }, spec: { containers: [] } } }));
  await step('pod status', () => core.patchNamespacedPodStatus({ namespace, name: 'p', body: { status: { conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: '2020-01-01T00:00:00Z' }] } } }, as(k8s.PatchStrategy.StrategicMergePatch)));
  await step('ephemeral container', async () => (await core.patchNamespacedPodEphemeralcontainers({ namespace, name: 'p', body: { spec: { ephemeralContainers: [{ name: 'e', image: 'i' }] } } }, as(k8s.PatchStrategy.StrategicMergePatch))).spec.ephemeralContainers);
  await step('eviction', () => core.createNamespacedPodEviction({ namespace, name: 'p', body: { metadata: { name: 'p' } } }));
  await step('evicted', () => core.readNamespacedPod({ namespace, name: 'p' }));
}

async function generic() {
  await step('object: create', () => objects.create({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'o', namespace }, data: { a: 'b' } }));
  const read = await step('object: read', () => objects.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'o', namespace } }));
  await step('object: replace', () => objects.replace({ ...read, data: { a: 'c' } }));
  await step('object: patch', () => objects.patch({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'o', namespace }, data: { d: 'e' } }, undefined, undefined, 'js', undefined, k8s.PatchStrategy.MergePatch));
  await step('object: apply', () => objects.patch({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'applied', namespace }, data: { d: 'e' } }, undefined, undefined, 'js', true, k8s.PatchStrategy.ServerSideApply));
  await step('object: list', async () => (await objects.list('v1', 'ConfigMap', namespace)).items.map((i) => i.metadata.name).filter((n) => !n.startsWith('g-') && n !== 'kube-root-ca.crt'));
  await step('object: delete', () => objects.delete({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'o', namespace } }));
  await step('object: delete again', () => objects.delete({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'o', namespace } }));
}

async function customObjects() {
  const group = `${namespace}.example.com`, version = 'v1', plural = 'shops', name = 's';
  await step('definition', async () => (await definitions.createCustomResourceDefinition({ body: {
    metadata: { name: `${plural}.${group}` },
    spec: { group, scope: 'Namespaced', names: { plural, kind: 'Shop' }, versions: [{ name: version, served: true, storage: true,
      subresources: { status: {}, scale: { specReplicasPath: '.spec.replicas', statusReplicasPath: '.status.replicas' } },
      schema: { openAPIV3Schema: { type: 'object', properties: {
        spec: { type: 'object', properties: { replicas: { type: 'integer', minimum: 1, default: 1 }, open: { type: 'boolean' }, rate: { type: 'number' } }, 'x-kubernetes-validations': [{ rule: '!has(self.open) || self.replicas < 9' }] },
        status: { type: 'object', properties: { replicas: { type: 'integer' } } } } } } }] },
  } })).spec.names);
  const of = { group, version, namespace, plural };
  for (let tries = 0; ; tries++) { // kube-apiserver serves it a moment later
    try { await custom.listNamespacedCustomObject(of); break; } catch (e) { if (![404, 429].includes(e.code) || tries > 100) throw e; }
    await new Promise((done) => setTimeout(done, 100));
  }
  const body = (spec) => ({ apiVersion: `${group}/${version}`, kind: 'Shop', metadata: { name }, spec });
  await step('custom: create', () => custom.createNamespacedCustomObject({ ...of, body: body({ open: true, rate: 0.5, lost: 1 }) }));
  await step('custom: invalid', () => custom.createNamespacedCustomObject({ ...of, body: body({ replicas: 0 }) }));
  await step('custom: rule', () => custom.createNamespacedCustomObject({ ...of, body: { ...body({ replicas: 9, open: true }), metadata: { name: 'r' } } }));
  await step('custom: strict', () => custom.createNamespacedCustomObject({ ...of, fieldValidation: 'Strict', body: { ...body({ lost: 1 }), metadata: { name: 'r' } } }));
  const read = await step('custom: get', () => custom.getNamespacedCustomObject({ ...of, name }));
  await step('custom: list', () => custom.listNamespacedCustomObject(of));
  await step('custom: replace', () => custom.replaceNamespacedCustomObject({ ...of, name, body: { ...read, spec: { replicas: 2 } } }));
  await step('custom: patch', () => custom.patchNamespacedCustomObject({ ...of, name, body: { spec: { open: false } } }, as(k8s.PatchStrategy.MergePatch)));
  await step('custom: strategic merge patch', () => custom.patchNamespacedCustomObject({ ...of, name, body: { spec: { open: false } } }, as(k8s.PatchStrategy.StrategicMergePatch)));
  await step('custom: apply', () => custom.patchNamespacedCustomObject({ ...of, name, fieldManager: 'js', force: true, body: body({ replicas: 3 }) }, as(k8s.PatchStrategy.ServerSideApply)));
  await step('custom: status', () => custom.patchNamespacedCustomObjectStatus({ ...of, name, body: { status: { replicas: 1 }, spec: { replicas: 7 } } }, as(k8s.PatchStrategy.MergePatch)));
  await step('custom: scale', () => custom.getNamespacedCustomObjectScale({ ...of, name }));
  await step('custom: delete', () => custom.deleteNamespacedCustomObject({ ...of, name }));
  await step('custom: get nothing', () => custom.getNamespacedCustomObject({ ...of, name }));
  await definitions.deleteCustomResourceDefinition({ name: `${plural}.${group}` });
}

// until waits for a condition.
async function until(what, holds) {
  for (let tries = 0; !holds(); tries++) {
    if (tries > 300) throw new Error(`waited too long for ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

async function watches() {
  const path = `/api/v1/namespaces/${namespace}/configmaps`, labelSelector = 'watch=y';
  const watched = (name, data) => ({ ...configMap(name, { labels: { watch: 'y' } }), data });
  const from = (await core.listNamespacedConfigMap({ namespace })).metadata.resourceVersion;
  const events = [];
  let ended = false, failure;
  await new k8s.Watch(kc).watch(path, { labelSelector, resourceVersion: from, timeoutSeconds: 4, allowWatchBookmarks: true }, (type, o) => events.push({ type, name: o.metadata?.name, data: o.data, kind: o.kind }), (e) => { ended = true; failure = e; });
  await core.createNamespacedConfigMap({ namespace, body: watched('w', { n: '1' }) });
  await core.patchNamespacedConfigMap({ namespace, name: 'w', body: { data: { n: '2' } } }, as(k8s.PatchStrategy.MergePatch));
  await core.patchNamespacedConfigMap({ namespace, name: 'w', body: { metadata: { labels: { watch: 'n' } } } }, as(k8s.PatchStrategy.MergePatch));
  await core.patchNamespacedConfigMap({ namespace, name: 'w', body: { metadata: { labels: { watch: 'y' } } } }, as(k8s.PatchStrategy.MergePatch));
  await core.deleteNamespacedConfigMap({ namespace, name: 'w' });
  await until('the end of the watch', () => ended);
  print('watch', { events: events.filter((e) => e.type !== 'BOOKMARK'), failure });
  let refused;
  await new k8s.Watch(kc).watch(path, { resourceVersion: 'x' }, () => {}, (e) => { refused = e; });
  await until('the end of a refused watch', () => refused);
  print('refused watch', { message: refused.message.length > 0 }); // 400 or 500: P7 of docs/compatibility.md

  // The server ends each watch of this informer after a second: it goes on from where it was.
  const seen = [], connected = [];
  const informer = new k8s.ListWatch(`${path}?timeoutSeconds=1`, new k8s.Watch(kc), () => core.listNamespacedConfigMap({ namespace, labelSelector }), false, labelSelector);
  for (const verb of ['add', 'update', 'delete']) informer.on(verb, (o) => seen.push(`${verb} ${o.metadata.name} ${JSON.stringify(o.data)}`));
  informer.on('error', (e) => seen.push(`error ${e}`));
  informer.on('connect', () => connected.push(1));
  await core.createNamespacedConfigMap({ namespace, body: watched('before', { n: '0' }) });
  await informer.start();
  await until('the first object', () => seen.length === 1);
  for (const n of ['1', '2', '3']) {
    const restarts = connected.length;
    await until('a restart of the informer', () => connected.length > restarts);
    const events = seen.length;
    await (n === '1' ? core.createNamespacedConfigMap({ namespace, body: watched('i', { n }) })
      : core.patchNamespacedConfigMap({ namespace, name: 'i', body: { data: { n } } }, as(k8s.PatchStrategy.MergePatch)));
    await until('an event', () => seen.length > events);
  }
  await core.deleteNamespacedConfigMap({ namespace, name: 'before' });
  await until('the deletion', () => seen.length === 5);
  await informer.stop();
  print('informer', { seen, cache: informer.list(namespace).map((o) => o.metadata.name) });
}

for (const part of [basics, lists, patches, types, generic, customObjects, watches]) await part();
process.exit(0);
