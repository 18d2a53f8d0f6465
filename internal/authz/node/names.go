package node

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// This file reads the references in stored objects. It decodes only the members that it needs.

// named is a reference to an object by name.
type named struct {
	Name string `json:"name"`
}

// pod is the part of a Pod with its node and its references.
type pod struct {
	Metadata struct {
		Annotations struct {
			Mirror *string `json:"kubernetes.io/config.mirror"`
		} `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Node                string      `json:"nodeName"`
		Account             string      `json:"serviceAccountName"`
		PullSecrets         []named     `json:"imagePullSecrets"`
		Init                []container `json:"initContainers"`
		Containers          []container `json:"containers"`
		EphemeralContainers []container `json:"ephemeralContainers"`
		Volumes             []volume    `json:"volumes"`
		Claims              []struct {
			Name  string  `json:"name"`
			Claim *string `json:"resourceClaimName"`
		} `json:"resourceClaims"`
	} `json:"spec"`
	Status struct {
		Claims []struct {
			Name  string `json:"name"`
			Claim string `json:"resourceClaimName"`
		} `json:"resourceClaimStatuses"`
		Extended struct {
			Claim string `json:"resourceClaimName"`
		} `json:"extendedResourceClaimStatus"`
	} `json:"status"`
}

type container struct {
	EnvFrom []struct {
		Secret    named `json:"secretRef"`
		ConfigMap named `json:"configMapRef"`
	} `json:"envFrom"`
	Env []struct {
		From struct {
			Secret    named `json:"secretKeyRef"`
			ConfigMap named `json:"configMapKeyRef"`
		} `json:"valueFrom"`
	} `json:"env"`
}

// withSecret is a source of a volume that may name a Secret.
type withSecret struct {
	Secret named `json:"secretRef"`
}

type volume struct {
	Name  string `json:"name"`
	Azure struct {
		Secret string `json:"secretName"`
	} `json:"azureFile"`
	CephFS    withSecret `json:"cephfs"`
	Cinder    withSecret `json:"cinder"`
	Flex      withSecret `json:"flexVolume"`
	RBD       withSecret `json:"rbd"`
	ScaleIO   withSecret `json:"scaleIO"`
	ISCSI     withSecret `json:"iscsi"`
	StorageOS withSecret `json:"storageos"`
	CSI       struct {
		Secret named `json:"nodePublishSecretRef"`
	} `json:"csi"`
	Secret struct {
		Name string `json:"secretName"`
	} `json:"secret"`
	ConfigMap named `json:"configMap"`
	Projected struct {
		Sources []struct {
			Secret    named `json:"secret"`
			ConfigMap named `json:"configMap"`
		} `json:"sources"`
	} `json:"projected"`
	Claim *struct {
		Name string `json:"claimName"`
	} `json:"persistentVolumeClaim"`
	Ephemeral *struct{} `json:"ephemeral"`
}

// named calls f for each object that the Pod with the name lets its node read. All of them are in
// the Pod's namespace.
func (p *pod) named(pod string, f func(kind, string)) {
	if p.Metadata.Annotations.Mirror != nil {
		return // its node created it, and must not give itself rights
	}
	f(accounts, p.Spec.Account)
	for _, s := range p.Spec.PullSecrets {
		f(secrets, s.Name)
	}
	for _, all := range [...][]container{p.Spec.Init, p.Spec.Containers, p.Spec.EphemeralContainers} {
		for i := range all {
			all[i].named(f)
		}
	}
	for i := range p.Spec.Volumes {
		p.Spec.Volumes[i].named(pod, f)
	}
	for _, c := range p.Spec.Claims {
		if c.Claim != nil {
			f(resourceClaims, *c.Claim)
			continue
		}
		for _, made := range p.Status.Claims {
			if made.Name == c.Name {
				f(resourceClaims, made.Claim)
				break
			}
		}
	}
	f(resourceClaims, p.Status.Extended.Claim)
}

func (c *container) named(f func(kind, string)) {
	for i := range c.EnvFrom {
		f(secrets, c.EnvFrom[i].Secret.Name)
		f(configMaps, c.EnvFrom[i].ConfigMap.Name)
	}
	for i := range c.Env {
		f(secrets, c.Env[i].From.Secret.Name)
		f(configMaps, c.Env[i].From.ConfigMap.Name)
	}
}

func (v *volume) named(pod string, f func(kind, string)) {
	f(secrets, v.Azure.Secret)
	f(secrets, v.Secret.Name)
	f(secrets, v.CSI.Secret.Name)
	for _, s := range [...]*withSecret{&v.CephFS, &v.Cinder, &v.Flex, &v.RBD, &v.ScaleIO, &v.ISCSI, &v.StorageOS} {
		f(secrets, s.Secret.Name)
	}
	f(configMaps, v.ConfigMap.Name)
	for i := range v.Projected.Sources {
		f(secrets, v.Projected.Sources[i].Secret.Name)
		f(configMaps, v.Projected.Sources[i].ConfigMap.Name)
	}
	switch {
	case v.Claim != nil:
		f(claims, v.Claim.Name)
	case v.Ephemeral != nil:
		f(claims, pod+"-"+v.Name)
	}
}

// fullName is a reference to an object in any namespace.
type fullName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type withFullSecret struct {
	Secret fullName `json:"secretRef"`
}

// persistentVolume is the part of a PersistentVolume with its claim and its Secrets.
type persistentVolume struct {
	Spec struct {
		Claim *fullName `json:"claimRef"`
		Azure struct {
			Secret    string `json:"secretName"`
			Namespace string `json:"secretNamespace"`
		} `json:"azureFile"`
		CephFS    withFullSecret `json:"cephfs"`
		Cinder    withFullSecret `json:"cinder"`
		Flex      withFullSecret `json:"flexVolume"`
		RBD       withFullSecret `json:"rbd"`
		ScaleIO   withFullSecret `json:"scaleIO"`
		ISCSI     withFullSecret `json:"iscsi"`
		StorageOS withFullSecret `json:"storageos"`
		CSI       struct {
			Publish fullName `json:"nodePublishSecretRef"`
			Stage   fullName `json:"nodeStageSecretRef"`
			Expand  fullName `json:"nodeExpandSecretRef"`
		} `json:"csi"`
	} `json:"spec"`
}

// secrets returns the Secrets that the node of the claim may read. Most sources take the
// namespace of the claim if they name none.
func (v *persistentVolume) secrets() []fullName {
	s := &v.Spec
	byClaim := func(n fullName) fullName {
		if n.Namespace == "" {
			n.Namespace = s.Claim.Namespace
		}
		return n
	}
	all := []fullName{
		byClaim(fullName{s.Azure.Namespace, s.Azure.Secret}),
		byClaim(s.CephFS.Secret), byClaim(s.Flex.Secret), byClaim(s.RBD.Secret), byClaim(s.ScaleIO.Secret), byClaim(s.ISCSI.Secret),
		s.Cinder.Secret, s.StorageOS.Secret, s.CSI.Publish, s.CSI.Stage, s.CSI.Expand,
	}
	var named []fullName
	for _, n := range all {
		if n.Name != "" {
			named = append(named, n)
		}
	}
	return named
}

// onNode is an object that names its node in its spec: a VolumeAttachment or a ResourceSlice.
type onNode struct {
	Spec struct {
		Node string `json:"nodeName"`
	} `json:"spec"`
}

// read decodes a stored object. An invalid object has no references, so it grants nothing.
func read[T any](o *store.Object) (v T) {
	err := json.Unmarshal(o.Bytes(), &v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return *new(T)
	}
	return v
}

// split returns the namespace and the name of a key; the namespace is empty for a kind without
// namespaces.
func split(key string) (namespace, name string) {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

// noPath is the reason for a request for an object that nothing relates to the node.
func noPath(node string) string {
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}
