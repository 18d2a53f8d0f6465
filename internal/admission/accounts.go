package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// accounts is the plugin ServiceAccount. It requires that the ServiceAccount of a new Pod exists,
// mounts its token in each container, and adds its image pull secrets.
type accounts struct {
	store *store.Store
	*lookups
}

const (
	defaultAccount = "default"
	// defaultAccountWait is how long a Pod waits for the account `default` of its namespace, which
	// a controller creates; the same as in kube-apiserver.
	defaultAccountWait = 1500 * time.Millisecond

	tokenVolume = "kube-api-access-"
	tokenPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is the lifetime of the token: an hour, and seven seconds by which kubelets
	// recognize such tokens.
	tokenSeconds = 3607
)

func serviceAccount(c *Config) registry.Plugin {
	s := accounts{c.Store, c.lookups}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Type.Collection == pods && (t.Subresource == "" && o == admissionv1.Create || t.Subresource == "ephemeralcontainers" && o == admissionv1.Update)
		},
		Mutate:   s.mutate,
		Validate: s.validate,
	}
}

// mutate gives a new Pod its account. It also checks the Secrets that a new Pod names.
func (s accounts) mutate(ctx context.Context, a *registry.Attributes) error {
	p := a.Object.(*corev1.Pod)
	if a.Subresource != "" {
		return nil
	}
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return checkMirror(a, p) // it must stay as its kubelet created it
	}
	p.Spec.ServiceAccountName = cmp.Or(p.Spec.ServiceAccountName, defaultAccount)
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
	account, err := s.find(ctx, a, p)
	if err != nil {
		return err
	}
	if automounts(account, p) {
		mountToken(p)
	}
	if len(p.Spec.ImagePullSecrets) == 0 {
		p.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	if enforces(account) {
		if err := checkSecrets(account, p); err != nil {
			return a.Forbidden("%w", err)
		}
	}
	return nil
}

// validate checks the Secrets that new ephemeral containers name.
func (s accounts) validate(ctx context.Context, a *registry.Attributes) error {
	p := a.Object.(*corev1.Pod)
	if a.Subresource == "" {
		return nil
	}
	if p.Spec.ServiceAccountName == "" {
		return a.Forbidden("no service account specified for pod %s/%s", a.Namespace, p.Name)
	}
	account, err := s.find(ctx, a, p)
	if err != nil || !enforces(account) {
		return err
	}
	mountable := secretsMountable(account)
	for i := range p.Spec.EphemeralContainers {
		c := (*corev1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if err := checkContainerSecrets("ephemeral container", c, account, mountable); err != nil {
			return a.Forbidden("%w", err)
		}
	}
	return nil
}

// find returns the account of a Pod. It waits for the account `default`.
func (s accounts) find(ctx context.Context, a *registry.Attributes, p *corev1.Pod) (*corev1.ServiceAccount, error) {
	name := p.Spec.ServiceAccountName
	state, end := a.State, time.Now().Add(defaultAccountWait)
	for {
		o := state.Get(serviceAccounts, a.Namespace+"/"+name)
		if o != nil {
			return s.accounts.Of(o)
		}
		var err error
		if name == defaultAccount {
			state, err = s.store.NotOlderThan(ctx, state.Revision()+1, time.Until(end))
		}
		var late *store.TooLargeError
		switch {
		case name != defaultAccount, errors.As(err, &late):
			missing := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
			return nil, a.Forbidden("error looking up service account %s/%s: %w", a.Namespace, name, missing)
		case err != nil:
			return nil, err
		}
	}
}

// automounts reports whether a token is mounted: the Pod decides, or else its account.
func automounts(account *corev1.ServiceAccount, p *corev1.Pod) bool {
	if p.Spec.AutomountServiceAccountToken != nil {
		return *p.Spec.AutomountServiceAccountToken
	}
	return ptr.Deref(account.AutomountServiceAccountToken, true)
}

// mountToken mounts a token in each container that mounts nothing at its path.
func mountToken(p *corev1.Pod) {
	name, there := "", false
	for i := range p.Spec.Volumes {
		if there = strings.HasPrefix(p.Spec.Volumes[i].Name, tokenVolume); there {
			name = p.Spec.Volumes[i].Name
			break
		}
	}
	if !there {
		name = tokenVolume + rand.String(5)
	}
	mounted := false
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			c := &all[i]
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				continue
			}
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
			mounted = true
		}
	}
	if mounted && !there {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()}})
	}
}

// tokenSource is the volume for clients in a Pod: a token, the certificate authority of the
// server, and the namespace.
func tokenSource() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To(int64(tokenSeconds))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}
}

// checkMirror rejects references that the mirror Pod of a kubelet cannot have.
func checkMirror(a *registry.Attributes, p *corev1.Pod) error {
	if p.Spec.ServiceAccountName != "" {
		return a.Forbidden("a mirror pod may not reference service accounts")
	}
	if namesSecrets(p) {
		return a.Forbidden("a mirror pod may not reference secrets")
	}
	for _, v := range p.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return a.Forbidden("a mirror pod may not use ServiceAccountToken volume projections")
		}
	}
	return nil
}

// namesSecrets reports whether anything in a Pod names a Secret.
func namesSecrets(p *corev1.Pod) bool {
	for _, s := range p.Spec.ImagePullSecrets {
		if s.Name != "" {
			return true
		}
	}
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			for range secretsOf(&all[i]) {
				return true
			}
		}
	}
	return slices.ContainsFunc(p.Spec.Volumes, namesSecret)
}

// namesSecret reports whether a volume names a Secret.
func namesSecret(v corev1.Volume) bool {
	local := func(r *corev1.LocalObjectReference) bool { return r != nil && r.Name != "" }
	switch {
	case v.AzureFile != nil:
		return v.AzureFile.SecretName != ""
	case v.CephFS != nil:
		return local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return local(v.FlexVolume.SecretRef)
	case v.Projected != nil:
		return slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.Secret != nil && s.Secret.Name != "" })
	case v.RBD != nil:
		return local(v.RBD.SecretRef)
	case v.Secret != nil:
		return v.Secret.SecretName != ""
	case v.ScaleIO != nil:
		return local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return local(v.StorageOS.SecretRef)
	case v.CSI != nil:
		return local(v.CSI.NodePublishSecretRef)
	}
	return false
}

// enforces reports whether Pods of an account may only use the Secrets that it lists.
func enforces(account *corev1.ServiceAccount) bool {
	is, _ := strconv.ParseBool(account.Annotations["kubernetes.io/enforce-mountable-secrets"])
	return is
}

// checkSecrets refuses a Pod that refers to Secrets that its account does not list.
func checkSecrets(account *corev1.ServiceAccount, p *corev1.Pod) error {
	mountable := secretsMountable(account)
	pulls := make(map[string]bool, len(account.ImagePullSecrets))
	for _, r := range account.ImagePullSecrets {
		pulls[r.Name] = true
	}
	for _, v := range p.Spec.Volumes {
		if v.Secret != nil && !mountable[v.Secret.SecretName] {
			return fmt.Errorf("volume with secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name)
		}
	}
	for i := range p.Spec.InitContainers {
		if err := checkContainerSecrets("init container", &p.Spec.InitContainers[i], account, mountable); err != nil {
			return err
		}
	}
	for i := range p.Spec.Containers {
		if err := checkContainerSecrets("container", &p.Spec.Containers[i], account, mountable); err != nil {
			return err
		}
	}
	for i, s := range p.Spec.ImagePullSecrets {
		if !pulls[s.Name] {
			return fmt.Errorf(`imagePullSecrets[%d].name="%s" is not allowed because service account %s does not reference that imagePullSecret`, i, s.Name, account.Name)
		}
	}
	return nil
}

// secretsMountable returns the names of the Secrets that an account lists.
func secretsMountable(account *corev1.ServiceAccount) map[string]bool {
	names := make(map[string]bool, len(account.Secrets))
	for _, r := range account.Secrets {
		names[r.Name] = true
	}
	return names
}

func checkContainerSecrets(kind string, c *corev1.Container, account *corev1.ServiceAccount, mountable map[string]bool) error {
	for name, where := range secretsOf(c) {
		if !mountable[name] {
			return fmt.Errorf("%s %s with %s referencing secret.secretName=\"%s\" is not allowed because service account %s does not reference that secret", kind, c.Name, where, name, account.Name)
		}
	}
	return nil
}

// secretsOf yields the Secrets in the environment of a container, and which field names them.
func secretsOf(c *corev1.Container) func(yield func(name, where string) bool) {
	return func(yield func(name, where string) bool) {
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !yield(e.ValueFrom.SecretKeyRef.Name, "envVar "+e.Name) {
				return
			}
		}
		for _, e := range c.EnvFrom {
			if e.SecretRef != nil && !yield(e.SecretRef.Name, "envFrom") {
				return
			}
		}
	}
}
