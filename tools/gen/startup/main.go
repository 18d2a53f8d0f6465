// Command startup writes internal/startup/objects.gz, the objects that a
// kube-apiserver creates when it starts, and internal/registry/testdata/objects.txt, the
// same objects as text. It reads them from a kube-apiserver that runs without
// controllers: its URL is in the environment variable SERVER, a token in TOKEN. Run it
// with "go generate ./internal/startup" when the version of Kubernetes changes.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// A source is a list of objects, and a predicate for those that the server created.
type source struct {
	path string
	kind schema.GroupVersionKind
	made func(o metav1.Object) bool
	new  func() runtime.Object
}

func of[T any, P interface {
	*T
	runtime.Object
}](path string, gv schema.GroupVersion, kind string, made func(metav1.Object) bool) source {
	return source{path, gv.WithKind(kind), made, func() runtime.Object { return P(new(T)) }}
}

func labelled(key, value string) func(metav1.Object) bool {
	return func(o metav1.Object) bool { return o.GetLabels()[key] == value }
}

func annotated(key string) func(metav1.Object) bool {
	return func(o metav1.Object) bool { return o.GetAnnotations()[key] != "" }
}

func named(prefix string) func(metav1.Object) bool {
	return func(o metav1.Object) bool { return strings.HasPrefix(o.GetName(), prefix) }
}

var (
	roles   = labelled("kubernetes.io/bootstrapping", "rbac-defaults")
	flows   = annotated("apf.kubernetes.io/autoupdate-spec")
	sources = []source{
		of[rbacv1.ClusterRole]("/apis/rbac.authorization.k8s.io/v1/clusterroles", rbacv1.SchemeGroupVersion, "ClusterRole", roles),
		of[rbacv1.ClusterRoleBinding]("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", rbacv1.SchemeGroupVersion, "ClusterRoleBinding", roles),
		of[rbacv1.Role]("/apis/rbac.authorization.k8s.io/v1/roles", rbacv1.SchemeGroupVersion, "Role", roles),
		of[rbacv1.RoleBinding]("/apis/rbac.authorization.k8s.io/v1/rolebindings", rbacv1.SchemeGroupVersion, "RoleBinding", roles),
		of[flowcontrolv1.PriorityLevelConfiguration]("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", flowcontrolv1.SchemeGroupVersion, "PriorityLevelConfiguration", flows),
		of[flowcontrolv1.FlowSchema]("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", flowcontrolv1.SchemeGroupVersion, "FlowSchema", flows),
		of[schedulingv1.PriorityClass]("/apis/scheduling.k8s.io/v1/priorityclasses", schedulingv1.SchemeGroupVersion, "PriorityClass", named("system-")),
		of[apiregistrationv1.APIService]("/apis/apiregistration.k8s.io/v1/apiservices", apiregistrationv1.SchemeGroupVersion, "APIService", labelled("kube-aggregator.kubernetes.io/automanaged", "onstart")),
	}
)

func main() {
	if err := generate(os.Getenv("SERVER"), os.Getenv("TOKEN")); err != nil {
		fmt.Fprintln(os.Stderr, "startup:", err)
		os.Exit(1)
	}
}

func generate(server, token string) error {
	var all []json.RawMessage
	var text strings.Builder
	text.WriteString("# The objects that kube-apiserver v1.37.2 makes when it starts, without what differs from\n# run to run and without the status. Made by tools/gen/startup.\n")
	for _, s := range sources {
		objects, err := read(server, token, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		for _, o := range objects {
			all = append(all, o)
			if err := describe(&text, o); err != nil {
				return err
			}
		}
	}
	packed, err := pack(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile("objects.gz", packed, 0o644); err != nil {
		return err
	}
	return os.WriteFile("../registry/testdata/objects.txt", []byte(text.String()), 0o644)
}

// read returns the objects of a source as JSON, sorted by name.
func read(server, token string, s source) ([]json.RawMessage, error) {
	request, err := http.NewRequest("GET", server+s.path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the objects are no secret
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%s: %s", response.Status, body)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	var made []json.RawMessage
	for _, item := range list.Items {
		o, err := bare(s, item)
		if err != nil {
			return nil, err
		}
		if o != nil {
			made = append(made, o)
		}
	}
	return made, nil
}

// bare returns an object without the metadata and status that a server adds, or nil
// if the server did not create it.
func bare(s source, item json.RawMessage) (json.RawMessage, error) {
	o := s.new()
	if err := json.Unmarshal(item, o); err != nil {
		return nil, err
	}
	meta := o.(metav1.Object)
	if !s.made(meta) {
		return nil, nil
	}
	o.GetObjectKind().SetGroupVersionKind(s.kind)
	meta.SetUID("")
	meta.SetResourceVersion("")
	meta.SetGeneration(0)
	meta.SetManagedFields(nil)
	meta.SetCreationTimestamp(metav1.Time{})
	packed, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if i := bytes.Index(packed, []byte(`,"status":`)); i >= 0 { // the last member of all kinds that have it
		packed = append(packed[:i:i], '}')
	}
	return bytes.Replace(packed, []byte(`"rules":null,`), nil, 1), nil // set by a controller of kube-apiserver
}

// pack writes one line per object: its apiVersion, kind, namespace and name, then the
// other members of its metadata and the members after the metadata, as JSON.
func pack(all []json.RawMessage) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		var head metav1.PartialObjectMetadata
		if err := json.Unmarshal(o, &head); err != nil {
			return nil, err
		}
		metadata := json.RawMessage{}
		_, rest, _ := bytes.Cut(o, []byte(`"metadata":`))
		if err := json.NewDecoder(bytes.NewReader(rest)).Decode(&metadata); err != nil {
			return nil, err
		}
		own := bytes.TrimSuffix(bytes.TrimPrefix(rest[len(metadata):], []byte(",")), []byte("}"))
		meta := []byte("")
		if i := bytes.IndexAny(metadata, ","); i >= 0 { // behind the name
			meta = bytes.TrimSuffix(metadata[i+1:], []byte("}"))
		}
		if head.Namespace != "" { // and the namespace
			_, meta, _ = bytes.Cut(meta, []byte(","))
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", head.APIVersion, head.Kind, head.Namespace, head.Name, meta, own); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return out.Bytes(), err
}

// describe writes an object as lines of a path and a value.
func describe(out *strings.Builder, packed json.RawMessage) error {
	var o map[string]any
	if err := json.Unmarshal(packed, &o); err != nil {
		return err
	}
	meta := o["metadata"].(map[string]any)
	fmt.Fprintf(out, "\n%s %s\n", o["kind"], strings.TrimPrefix(fmt.Sprintf("%v/%v", cmp.Or(meta["namespace"], any("")), meta["name"]), "/"))
	delete(meta, "namespace")
	delete(meta, "name")
	delete(o, "kind")
	delete(o, "apiVersion")
	lines(out, "  ", o)
	return nil
}

// lines writes a value as lines. A list of scalars is one line.
func lines(out *strings.Builder, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			lines(out, path+"."+k, v[k])
		}
	case []any:
		if words := fmt.Sprintf("%q", v); !strings.Contains(words, "map[") {
			fmt.Fprintf(out, "%s %s\n", path, words)
			return
		}
		for i := range v {
			lines(out, fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	case nil:
	default:
		fmt.Fprintf(out, "%s %v\n", path, v)
	}
}
