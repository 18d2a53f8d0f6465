package columns

import (
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1" // kube-apiserver shows its descriptions
	coordinationv1 "k8s.io/api/coordination/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// others are the kinds of small groups: coordination, scheduling, node, certificates,
// apiregistration, apiextensions, resource and storagemigration.
var others = []kind{
	of(func() []column {
		return nameAndAge(str("Holder", doc(coordinationv1.LeaseSpec{}, "holderIdentity")))
	}, func(o *coordinationv1.Lease, r *resource.Row) {
		r.String(o.Name)
		r.String(deref(o.Spec.HolderIdentity, ""))
		since(r, o)
	}),
	of(func() []column {
		d := schedulingv1.PriorityClass{}
		return append(nameAndAge(num("Value", doc(d, "value")), flag("Global-Default", doc(d, "globalDefault"))),
			str("PreemptionPolicy", doc(d, "preemptionPolicy")))
	}, func(o *schedulingv1.PriorityClass, r *resource.Row) {
		r.String(o.Name)
		r.Int(int64(o.Value))
		r.Bool(o.GlobalDefault)
		since(r, o)
		r.String(string(deref(o.PreemptionPolicy, "")))
	}),
	of(func() []column { return nameAndAge(str("Handler", "")) },
		func(o *nodev1.RuntimeClass, r *resource.Row) {
			r.String(o.Name)
			r.String(o.Handler)
			since(r, o)
		}),
	of(func() []column {
		spec := certificatesv1beta1.CertificateSigningRequestSpec{}
		return []column{name, age, str("SignerName", doc(spec, "signerName")), str("Requestor", doc(spec, "request")),
			str("RequestedDuration", doc(spec, "expirationSeconds")), str("Condition", doc(certificatesv1beta1.CertificateSigningRequestStatus{}, "conditions"))}
	}, signingRequest),
	of(func() []column {
		return []column{name, str("SignerName", doc(certificatesv1.ClusterTrustBundleSpec{}, "signerName"))}
	},
		func(o *certificatesv1.ClusterTrustBundle, r *resource.Row) {
			r.String(o.Name)
			r.Or(o.Spec.SignerName, "<none>")
		}).reading("metadata.name", "spec.signerName"),
	of(func() []column {
		spec := certificatesv1.PodCertificateRequestSpec{}
		return []column{name, str("PodName", doc(spec, "podName")), str("ServiceAccountName", doc(spec, "serviceAccountName")),
			str("NodeName", doc(spec, "nodeName")), str("SignerName", doc(spec, "signerName")),
			str("State", "Is the request Pending, Issued, Denied, or Failed?"), str("UnverifiedUserAnnotations", doc(spec, "unverifiedUserAnnotations"))}
	}, podRequest),
	of(definitionColumns, definition).emptyAsNull().reading("metadata.name", "metadata.creationTimestamp", "spec.group", "spec.scope", "spec.names",
		"spec.versions.name", "spec.versions.served", "spec.versions.storage", "status.conditions"),
	of(func() []column {
		return nameAndAge(str("Service", "The reference to the service that hosts this API endpoint."), str("Available", "Whether this service is available."))
	}, apiService),
	of(func() []column {
		d := resourcev1.DeviceTaint{}
		return nameAndAge(str("Key", doc(d, "key")), str("Value", doc(d, "value")), str("Effect", doc(d, "effect")), str("TimeAdded", doc(d, "timeAdded")))
	}, taintRule),
	of(func() []column {
		return []column{str("Name", name.Description), str("Resource", "GroupResource to migrate"), str("Status", "Status of the migration")}
	}, migration),
	of(func() []column { return nameAndAge() }, func(o *resourcev1.DeviceClass, r *resource.Row) {
		r.String(o.Name)
		since(r, o)
	}),
	of(func() []column { return nameAndAge() }, func(o *resourcev1.ResourceClaimTemplate, r *resource.Row) {
		r.String(o.Name)
		since(r, o)
	}),
	of(func() []column {
		return nameAndAge(str("State", "A summary of the current state (allocated, pending, reserved, etc.)."))
	}, resourceClaim),
	of(func() []column {
		d := resourcev1.ResourceSliceSpec{}
		return nameAndAge(str("Node", doc(d, "nodeName")), str("Driver", doc(d, "driver")), str("Pool", doc(resourcev1.ResourcePool{}, "name")))
	}, func(o *resourcev1.ResourceSlice, r *resource.Row) {
		r.String(o.Name)
		r.String(deref(o.Spec.NodeName, ""))
		r.String(o.Spec.Driver)
		r.String(o.Spec.Pool.Name)
		since(r, o)
	}),
}

func signingRequest(o *certificatesv1.CertificateSigningRequest, r *resource.Row) {
	has := map[certificatesv1.RequestConditionType]bool{}
	for i := range o.Status.Conditions {
		has[o.Status.Conditions[i].Type] = true
	}
	state := "Pending"
	switch {
	case has[certificatesv1.CertificateDenied]:
		state = "Denied"
	case has[certificatesv1.CertificateApproved]:
		state = "Approved"
	}
	if has[certificatesv1.CertificateFailed] {
		state += ",Failed"
	}
	if len(o.Status.Certificate) > 0 {
		state += ",Issued"
	}
	asked := "<none>"
	if s := o.Spec.ExpirationSeconds; s != nil {
		asked = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	r.String(o.Name)
	since(r, o)
	r.Or(o.Spec.SignerName, "<none>")
	r.String(o.Spec.Username)
	r.String(asked)
	r.String(state)
}

func podRequest(o *certificatesv1.PodCertificateRequest, r *resource.Row) {
	state := "Pending"
	for i := range o.Status.Conditions {
		switch t := o.Status.Conditions[i].Type; t {
		case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			state = t
		}
	}
	r.String(o.Name)
	r.String(o.Spec.PodName)
	r.String(o.Spec.ServiceAccountName)
	r.String(string(o.Spec.NodeName))
	r.String(o.Spec.SignerName)
	r.String(state)
	labels(r, o.Spec.UnverifiedUserAnnotations)
}

func definitionColumns() []column {
	return append([]column{name, str("Scope", "Cluster/Namespaced"), str("Versions", "Served versions"),
		{Name: "Created At", Type: "date", Description: age.Description}},
		wide(str("Group", "API group"), str("Kind", "CustomResource kind"), str("ShortNames", "Short names"), flag("Established", "Established status"))...)
}

func definition(o *apiextensionsv1.CustomResourceDefinition, r *resource.Row) {
	var served []string
	for i := range o.Spec.Versions {
		switch v := &o.Spec.Versions[i]; {
		case v.Served && v.Storage:
			served = append(served, v.Name+"(storage)")
		case v.Served:
			served = append(served, v.Name)
		}
	}
	slices.Sort(served)
	r.String(o.Name)
	r.String(string(o.Spec.Scope))
	r.String(strings.Join(served, ","))
	r.String(o.CreationTimestamp.UTC().Format(time.RFC3339))
	r.String(o.Spec.Group)
	r.String(o.Spec.Names.Kind)
	r.String(strings.Join(o.Spec.Names.ShortNames, ","))
	r.Bool(slices.ContainsFunc(o.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}))
}

func taintRule(o *resourcev1.DeviceTaintRule, r *resource.Row) {
	t := &o.Spec.Taint
	r.String(o.Name)
	r.String(t.Key)
	r.String(t.Value)
	r.String(string(t.Effect))
	if t.TimeAdded == nil {
		r.String("")
	} else {
		r.Age(t.TimeAdded.Time)
	}
	since(r, o)
}

func migration(o *migrationv1.StorageVersionMigration, r *resource.Row) {
	state := "Unknown"
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		if c.Status != metav1.ConditionTrue {
			continue
		}
		switch t := migrationv1.MigrationConditionType(c.Type); t {
		case migrationv1.MigrationRunning, migrationv1.MigrationSucceeded, migrationv1.MigrationFailed:
			state = c.Type
		}
	}
	r.String(o.Name)
	r.String(o.Spec.Resource.String())
	r.String(state)
}

func apiService(o *apiregistrationv1.APIService, r *resource.Row) {
	service, available := "Local", "Unknown"
	if s := o.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		if c.Type != apiregistrationv1.Available {
			continue
		}
		if available = string(c.Status); c.Status != apiregistrationv1.ConditionTrue && c.Reason != "" {
			available += " (" + c.Reason + ")"
		}
		break
	}
	r.String(o.Name)
	r.String(service)
	r.String(available)
	since(r, o)
}

func resourceClaim(o *resourcev1.ResourceClaim, r *resource.Row) {
	var states []string
	if o.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case o.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(o.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	case o.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	r.String(o.Name)
	joined(r, states, "")
	since(r, o)
}
