package admission

import (
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/quota"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Config is what admission needs.
type Config struct {
	Store *store.Store
	// Plugins says which steps there are.
	Plugins Plugins
	// Quotas keeps the books of ResourceQuotas; nil: nothing is counted.
	Quotas *quota.Books
}

// Steps returns what looks at writes once they are valid.
func Steps(c Config) []registry.Step {
	l := newLookups(c.Store)
	var steps []registry.Step
	add := func(name string, step registry.Step) {
		if c.Plugins.On(name) {
			steps = append(steps, step)
		}
	}
	add(limitRanger, registry.Step{Wants: limits{l}.wants, Admit: limits{l}.admit})
	add(serviceAccount, registry.Step{Wants: accounts{l}.wants, Admit: accounts{l}.admit})
	add(podSecurityPlugin, registry.Step{Wants: podSecurity{l}.wants, Admit: podSecurity{l}.admit})
	add(priority, registry.Step{Wants: writesOf(priorityClasses), Admit: func(_ context.Context, a *registry.Admission) error {
		return l.oneDefaultPriority(c.Store.Any(), a)
	}})
	add(subjectRestriction, registry.Step{Wants: writesOf("certificatesigningrequests.certificates.k8s.io"), Admit: noMasters})
	if c.Quotas != nil {
		add(ResourceQuota, registry.Step{Wants: c.Quotas.Wants, Admit: c.Quotas.Admit}) // what is refused is not counted: the last
	}
	return steps
}

// writesOf wants creates and updates of objects of a collection, not of what is
// below them.
func writesOf(collection string) func(registry.Target, string) bool {
	return func(t registry.Target, verb string) bool {
		return t.Subresource == "" && verb != "delete" && t.Type.Collection == collection
	}
}

// refused is the answer to a write that is not allowed.
func refused(a *registry.Admission, format string, args ...any) error {
	return apierrors.NewForbidden(a.Type.GroupResource(), a.Object.(metav1.Object).GetName(), fmt.Errorf(format, args...))
}

// oneDefaultPriority refuses a second class for the Pods that name none.
func (l *lookups) oneDefaultPriority(s *store.State, a *registry.Admission) error {
	class := a.Object.(*schedulingv1.PriorityClass)
	if !class.GlobalDefault {
		return nil
	}
	global := l.defaultPriority.At(s)
	if global.err != nil {
		return global.err
	}
	if have := global.class; have != nil && (a.Verb == "create" || have.Name != class.Name) {
		return refused(a, "PriorityClass %v is already marked as default. Only one default can exist", have.Name)
	}
	return nil
}

// noMasters refuses requests for certificates of clients who may do everything.
func noMasters(_ context.Context, a *registry.Admission) error {
	r := a.Object.(*certificatesv1.CertificateSigningRequest)
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	asked, err := certificates.Parse(r)
	if err != nil {
		return refused(a, "failed to parse CSR: %v", err)
	}
	if slices.Contains(asked.Subject.Organization, "system:masters") {
		return refused(a, "use of %s signer with system:masters group is not allowed", r.Spec.SignerName)
	}
	return nil
}
