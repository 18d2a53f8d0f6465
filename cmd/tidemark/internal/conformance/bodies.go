package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"time"
)

// Parts of bodies.
const (
	// The image is never pulled: no scheduler looks at the pods.
	idlePod      = `"schedulerName":"none.tidemark.dev","automountServiceAccountToken":false,"restartPolicy":"Always","containers":[{"name":"c","image":"example.invalid/none"}]`
	idleTemplate = `"template":{"metadata":{"labels":{"run":"none"}},"spec":{` + idlePod + `}}`
	idleSelector = `"selector":{"matchLabels":{"run":"none"}}`
	idleJob      = `"suspend":true,"template":{"spec":{"schedulerName":"none.tidemark.dev","restartPolicy":"Never","containers":[{"name":"c","image":"example.invalid/none"}]}}`
	idleRules    = `"matchConstraints":{"resourceRules":[{"apiGroups":["none.tidemark.dev"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nothings"]}]}`
)

// bodies holds the required fields of each type, by resource and group. A type without a
// row needs only a name. The objects have no effect: nothing is scheduled, matched, granted
// or exposed. $NS, $ID, $CSR, $STUB and $ANCHOR are replaced.
var bodies = map[string]string{
	"events":                 `{"involvedObject":{"kind":"ConfigMap","name":"none","namespace":"$NS"}}`,
	"limitranges":            `{"spec":{"limits":[]}}`,
	"persistentvolumes":      `{"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"claimRef":{"namespace":"$NS","name":"none"},"hostPath":{"path":"/nonexistent"}}}`,
	"persistentvolumeclaims": `{"spec":{"storageClassName":"none.tidemark.dev","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	"pods":                   `{"spec":{` + idlePod + `}}`,
	"podtemplates":           `{` + idleTemplate + `}`,
	"replicationcontrollers": `{"spec":{"replicas":0,"selector":{"run":"none"},` + idleTemplate + `}}`,
	"services":               `{"spec":{"clusterIP":"None","ports":[{"port":80}]}}`,
	"nodes":                  `{"spec":{"unschedulable":true}}`,

	"controllerrevisions.apps": `{"revision":1,"data":{}}`,
	"daemonsets.apps":          `{"spec":{` + idleSelector + `,"template":{"metadata":{"labels":{"run":"none"}},"spec":{"nodeSelector":{"none.tidemark.dev":"none"},` + idlePod + `}}}}`,
	"deployments.apps":         `{"spec":{"replicas":0,` + idleSelector + `,` + idleTemplate + `}}`,
	"replicasets.apps":         `{"spec":{"replicas":0,` + idleSelector + `,` + idleTemplate + `}}`,
	"statefulsets.apps":        `{"spec":{"replicas":0,"serviceName":"none",` + idleSelector + `,` + idleTemplate + `}}`,
	"jobs.batch":               `{"spec":{` + idleJob + `}}`,
	"cronjobs.batch":           `{"spec":{"suspend":true,"schedule":"0 0 1 1 *","jobTemplate":{"spec":{` + idleJob + `}}}}`,

	"horizontalpodautoscalers.autoscaling": `{"spec":{"minReplicas":1,"maxReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"none"}}}`,
	"poddisruptionbudgets.policy":          `{"spec":{"minAvailable":0,` + idleSelector + `}}`,

	"rolebindings.rbac.authorization.k8s.io":        `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"none"}}`,
	"clusterrolebindings.rbac.authorization.k8s.io": `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"none-$ID"}}`,

	"networkpolicies.networking.k8s.io": `{"spec":{"podSelector":{"matchLabels":{"run":"none"}}}}`,
	"ingresses.networking.k8s.io":       `{"spec":{"ingressClassName":"none.tidemark.dev","defaultBackend":{"service":{"name":"none","port":{"number":80}}}}}`,
	"ingressclasses.networking.k8s.io":  `{"spec":{"controller":"none.tidemark.dev/none"}}`,
	"ipaddresses.networking.k8s.io":     `{"metadata":{"name":"192.0.2.77"},"spec":{"parentRef":{"resource":"services","namespace":"$NS","name":"none"}}}`,
	"servicecidrs.networking.k8s.io":    `{"spec":{"cidrs":["192.0.2.0/28"]}}`,

	"runtimeclasses.node.k8s.io":          `{"handler":"none"}`,
	"priorityclasses.scheduling.k8s.io":   `{"value":1}`,
	"leasecandidates.coordination.k8s.io": `{"spec":{"leaseName":"none","binaryVersion":"1.0.0","emulationVersion":"1.0.0","strategy":"OldestEmulationVersion"}}`,
	"endpointslices.discovery.k8s.io":     `{"addressType":"IPv4","endpoints":[]}`,
	"events.events.k8s.io":                `{"eventTime":"2020-01-01T00:00:00.000000Z","reportingController":"tidemark.dev/conformance","reportingInstance":"none","action":"none","reason":"None","type":"Normal","regarding":{"kind":"ConfigMap","name":"none","namespace":"$NS"}}`,

	"storageclasses.storage.k8s.io":          `{"provisioner":"none.tidemark.dev"}`,
	"csinodes.storage.k8s.io":                `{"spec":{"drivers":[]}}`,
	"csidrivers.storage.k8s.io":              `{"spec":{}}`,
	"csistoragecapacities.storage.k8s.io":    `{"storageClassName":"none.tidemark.dev"}`,
	"volumeattachments.storage.k8s.io":       `{"spec":{"attacher":"none.tidemark.dev","nodeName":"none-$ID","source":{"persistentVolumeName":"none-$ID"}}}`,
	"volumeattributesclasses.storage.k8s.io": `{"driverName":"none.tidemark.dev","parameters":{"none":"none"}}`,

	"flowschemas.flowcontrol.apiserver.k8s.io":                 `{"spec":{"matchingPrecedence":9999,"priorityLevelConfiguration":{"name":"none-$ID"}}}`,
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": `{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"limitResponse":{"type":"Reject"}}}}`,

	"validatingadmissionpolicies.admissionregistration.k8s.io":       `{"spec":{"failurePolicy":"Ignore",` + idleRules + `,"validations":[{"expression":"true"}]}}`,
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": `{"spec":{"policyName":"none-$ID","validationActions":["Audit"]}}`,
	"mutatingadmissionpolicies.admissionregistration.k8s.io":         `{"spec":{"failurePolicy":"Ignore","reinvocationPolicy":"Never",` + idleRules + `,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}}`,
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   `{"spec":{"policyName":"none-$ID"}}`,

	"customresourcedefinitions.apiextensions.k8s.io": `{"metadata":{"name":"nothings.swept-$ID.tidemark.dev"},"spec":{"group":"swept-$ID.tidemark.dev","scope":"Namespaced","names":{"plural":"nothings","singular":"nothing","kind":"Nothing"},"versions":[{"name":"v1","served":false,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
	"apiservices.apiregistration.k8s.io":             `{"metadata":{"name":"v1.none-$ID.tidemark.dev"},"spec":{"group":"none-$ID.tidemark.dev","version":"v1","groupPriorityMinimum":1,"versionPriority":1}}`,
	"certificatesigningrequests.certificates.k8s.io": `{"spec":{"request":"$CSR","signerName":"none.tidemark.dev/none","usages":["digital signature"]}}`,
	"clustertrustbundles.certificates.k8s.io":        `{"spec":{"trustBundle":"$ANCHOR"}}`,
	"podcertificaterequests.certificates.k8s.io": `{"spec":{"signerName":"none.tidemark.dev/none","podName":"none-$ID","podUID":"none","serviceAccountName":"none-$ID",` +
		`"serviceAccountUID":"none","nodeName":"none-$ID","nodeUID":"none","maxExpirationSeconds":3600,"stubPKCS10Request":"$STUB"}}`,
	"storageversionmigrations.storagemigration.k8s.io": `{"spec":{"resource":{"group":"none.tidemark.dev","resource":"nothings"}}}`,

	"deviceclasses.resource.k8s.io":          `{"spec":{}}`,
	"devicetaintrules.resource.k8s.io":       `{"spec":{"deviceSelector":{"driver":"none.tidemark.dev"},"taint":{"key":"none","effect":"None"}}}`,
	"resourceclaims.resource.k8s.io":         `{"spec":{}}`,
	"resourceclaimtemplates.resource.k8s.io": `{"spec":{"spec":{}}}`,
	"resourceslices.resource.k8s.io":         `{"spec":{"driver":"none.tidemark.dev","nodeName":"none-$ID","pool":{"name":"none-$ID","generation":1,"resourceSliceCount":1},"devices":[]}}`,
}

// template returns an object of a type with all that it needs but its name, unless
// the type wants a certain one.
func (b *bed) template(r *resourceType) object {
	if r == b.resource && b.given != nil {
		return b.given.copied()
	}
	key := r.resource
	if r.group != "" {
		key += "." + r.group
	}
	text, ok := bodies[key]
	if !ok {
		text = `{}`
	}
	text = strings.NewReplacer("$NS", b.namespace, "$ID", b.suffix).Replace(text)
	for name, made := range map[string]func() string{"$CSR": certificateRequest, "$STUB": stubRequest, "$ANCHOR": trustAnchor} {
		if strings.Contains(text, name) {
			text = strings.ReplaceAll(text, name, made())
		}
	}
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err) // the table is wrong
	}
	o["kind"], o["apiVersion"] = r.kind, r.apiVersion()
	return o
}

// certificateRequest returns a certificate request in base64. No signer handles it.
func certificateRequest() string {
	der := requestFor(pkix.Name{CommonName: "none"})
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// stubRequest returns a certificate request that proves a key alone, in base64.
func stubRequest() string { return base64.StdEncoding.EncodeToString(requestFor(pkix.Name{})) }

func requestFor(subject pkix.Name) []byte {
	key := newKey()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		panic(err)
	}
	return der
}

// trustAnchor returns a certificate of an authority that signs nothing, in PEM for a JSON string.
func trustAnchor() string {
	key := newKey()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "none"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return strings.ReplaceAll(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), "\n", `\n`)
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // no randomness
	}
	return key
}
