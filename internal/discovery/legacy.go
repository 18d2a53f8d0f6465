package discovery

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// anywhere is the network of all clients: they use the same address of the server.
const anywhere = "0.0.0.0/0"

// coreVersions is GET /api. Like the resource list of the core group, it has no apiVersion.
func coreVersions(c *resource.Catalog, serverAddress string) Document {
	doc := metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: anywhere, ServerAddress: serverAddress},
		},
	}
	if core := c.Group(""); core != nil {
		for _, v := range core.Versions {
			doc.Versions = append(doc.Versions, v.Name)
		}
	}
	return plain(doc)
}

// groupList is GET /apis.
func groupList(c *resource.Catalog) Document {
	doc := metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{},
	}
	for _, g := range c.Groups() {
		if g.Name != "" {
			doc.Groups = append(doc.Groups, versionsOf(&g))
		}
	}
	return plain(doc)
}

// oneGroup is GET /apis/GROUP.
func oneGroup(g *resource.Group) Document {
	doc := versionsOf(g)
	doc.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return plain(doc)
}

func versionsOf(g *resource.Group) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.Name, Versions: []metav1.GroupVersionForDiscovery{}}
	for _, v := range g.Versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: groupVersion(g.Name, v.Name),
			Version:      v.Name,
		})
	}
	if len(out.Versions) > 0 {
		out.PreferredVersion = out.Versions[0]
	}
	return out
}

// resourceList is GET /apis/GROUP/VERSION and GET /api/v1.
func resourceList(group string, v *resource.Version) Document {
	doc := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: groupVersion(group, v.Name),
		APIResources: []metav1.APIResource{},
	}
	if group == "" {
		doc.APIVersion = ""
	}
	for _, t := range v.Types {
		doc.APIResources = append(doc.APIResources, metav1.APIResource{
			Name:               t.Resource,
			SingularName:       t.Singular,
			Namespaced:         t.Namespaced,
			Kind:               t.Kind,
			Verbs:              t.Discovered(),
			ShortNames:         t.ShortNames,
			Categories:         t.Categories,
			StorageVersionHash: storageVersionHash(t),
		})
		for i := range t.Subresources {
			s := &t.Subresources[i]
			r := metav1.APIResource{
				Name:       t.Resource + "/" + s.Name,
				Namespaced: t.Namespaced,
				Kind:       s.Kind.Kind,
				Verbs:      s.Verbs,
			}
			if s.Kind.GroupVersion() != t.GroupVersion() {
				r.Group, r.Version = s.Kind.Group, s.Kind.Version
			}
			doc.APIResources = append(doc.APIResources, r)
		}
	}
	return plain(doc)
}

// storageVersionHash lets clients that migrate stored objects see whether the stored version
// has changed. It is the first eight bytes of the SHA-256 of group, version and kind; empty for
// a virtual resource. Built-in kinds have the version that kube-apiserver stores, as with etcd.
func storageVersionHash(t *resource.Type) string {
	if t.Collection == "" {
		return ""
	}
	stored := t.StoredVersion()
	version := stored.Version
	if older := storedOlder[t.Collection]; older != "" {
		version = older
	}
	sum := sha256.Sum256([]byte(stored.Group + "/" + version + "/" + stored.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// storedOlder are the versions that kube-apiserver v1.37 stores of kinds whose version here is another one.
var storedOlder = map[string]string{
	"clustertrustbundles.certificates.k8s.io":          "v1beta1",
	"customresourcedefinitions.apiextensions.k8s.io":   "v1beta1",
	"devicetaintrules.resource.k8s.io":                 "v1beta2",
	"podcertificaterequests.certificates.k8s.io":       "v1beta1",
	"storageversionmigrations.storagemigration.k8s.io": "v1beta1",
}

func groupVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

func plain(v any) Document {
	return Document{Body: append(marshal(v), '\n')}
}

// marshal encodes a document. It cannot fail: documents consist of strings, booleans and lists.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("discovery: " + err.Error())
	}
	return b
}
