package noderestriction

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// podCertificates allows a node to request certificates for the Pods that run on it, from the signers that they mount.
func (p restriction) podCertificates(ctx context.Context, r request) error {
	if r.Operation != admissionv1.Create {
		return r.Forbidden("unexpected operation %v", r.Operation)
	}
	if r.Subresource != "" {
		return r.Forbidden("unexpected subresource %v", r.Subresource)
	}
	asked := &r.Object.(*certificatesv1.PodCertificateRequest).Spec
	if string(asked.NodeName) != r.node {
		return r.Forbidden("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", asked.NodeName, r.node)
	}
	name := r.Namespace + "/" + asked.PodName
	own, err := named[corev1.Node](r, storedNodes, "", string(asked.NodeName), fmt.Sprintf("node %q", asked.NodeName))
	if err != nil {
		return err
	}
	if own.UID != asked.NodeUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", name, asked.NodeUID, own.UID)
	}
	pod, err := named[corev1.Pod](r, storedPods, r.Namespace+"/", asked.PodName, fmt.Sprintf("pod %q", name))
	if err != nil {
		return err
	}
	if err := podAsksFor(r, asked, pod); err != nil {
		return err
	}
	account, err := named[corev1.ServiceAccount](r, storedAccounts, r.Namespace+"/", asked.ServiceAccountName, fmt.Sprintf("service account %q", r.Namespace+"/"+asked.ServiceAccountName))
	if err != nil {
		return err
	}
	if account.UID != asked.ServiceAccountUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", name, asked.ServiceAccountUID, account.UID)
	}
	return p.signerMounted(ctx, r, asked, pod)
}

// named returns a stored object that a PodCertificateRequest names. As in kube-apiserver, an object that does not exist is
// not Forbidden, so that the node tries again.
func named[T any, P interface {
	*T
	runtime.Object
}](r request, of stored, prefix, name, shown string) (P, error) {
	o, err := get[T, P](r, of, prefix, name)
	if err == nil {
		return o, nil
	}
	err = fmt.Errorf("while retrieving %s named in the PodCertificateRequest: %w", shown, err)
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	return nil, r.Forbidden("%w", err)
}

// podAsksFor checks that a request is for a Pod as it runs on the node.
func podAsksFor(r request, asked *certificatesv1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	name := r.Namespace + "/" + asked.PodName
	if asked.PodUID != pod.UID {
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", name, asked.PodUID, string(pod.UID))
	}
	if pod.Spec.NodeName != string(asked.NodeName) {
		return r.Forbidden("pod %q is not running on node %q named in the PodCertificateRequest", name, asked.NodeName)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return r.Forbidden("pod %q is a mirror pod", name)
	}
	if asked.ServiceAccountName != pod.Spec.ServiceAccountName {
		return r.Forbidden("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", name, asked.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	return nil
}

// signerMounted allows the signers of the certificates that a Pod mounts, and those that the node has a right to.
func (p restriction) signerMounted(ctx context.Context, r request, asked *certificatesv1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		v := pod.Spec.Volumes[i].Projected
		for j := 0; v != nil && j < len(v.Sources); j++ {
			if c := v.Sources[j].PodCertificate; c != nil && c.SignerName == asked.SignerName {
				return nil
			}
		}
	}
	if p.authz != nil {
		ok, _, err := authz.Allowed(ctx, p.authz, &authz.Attributes{
			User: r.User, IsResource: true, Verb: "request-serviceaccounts-podcertificate-signer", Group: r.Type.Group, Version: r.Type.Version,
			Resource: strings.ReplaceAll(asked.SignerName, "/", ":"), Namespace: r.Namespace, Name: asked.ServiceAccountName,
		})
		if ok {
			return nil
		}
		if err != nil {
			return r.Forbidden("error authorizing %s to request podcertificaterequests for signer %q: %w", r.User.Name, asked.SignerName, err)
		}
	}
	return r.Forbidden("pod %q does not mount a podCertificate projected volume for signer %q", r.Namespace+"/"+asked.PodName, asked.SignerName)
}
