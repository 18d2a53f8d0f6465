package apply

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

var update = flag.Bool("update", false, "write the embedded schemas anew")

// TestEmbeddedSchemas compares the embedded schemas with the OpenAPI schemas.
func TestEmbeddedSchemas(t *testing.T) {
	raw, err := os.ReadFile("../openapi/schemas.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]*spec.Schema
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		t.Fatal(err)
	}
	from, err := schemaconv.ToSchemaFromOpenAPI(all, false)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, typ := range from.Types {
		lines = append(lines, typ.Name+" "+atomText(typ.Atom)+"\n")
	}
	slices.Sort(lines)
	want := strings.Join(lines, "")
	if *update {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		fmt.Fprint(w, want)
		w.Close()
		if err := os.WriteFile("schemas.txt.gz", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := embeddedText()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Error("the embedded schemas are not those of the OpenAPI schemas: run the test with -update")
	}
	found := map[string]smd.TypeDef{}
	for name, line := range index(got) {
		if !parse(name, found) || atomText(found[name].Atom) != line {
			t.Errorf("%s is read as %s\nand is %s", name, atomText(found[name].Atom), line)
		}
	}
}

// TestSchemasOfClients compares the embedded schemas with those of client-go, and checks that
// parsing keeps all of them.
func TestSchemasOfClients(t *testing.T) {
	object := &corev1.ConfigMap{}
	object.APIVersion, object.Kind = "v1", "ConfigMap"
	typed, err := applyconfigurations.NewTypeConverter(clientscheme.Scheme).ObjectToTyped(object)
	if err != nil {
		t.Fatal(err)
	}
	text, err := embeddedText()
	if err != nil {
		t.Fatal(err)
	}
	lines := index(text)
	seen := 0
	for _, typ := range typed.Schema().Types {
		if _, ok := lines[typ.Name]; !ok {
			continue // a version that is not served
		}
		seen++
		mine := embeddedTypes.library(typ.Name)
		if otherwise[typ.Name] {
			continue
		}
		got, _ := mine.Schema.FindNamedType(typ.Name)
		if got, want := atomText(got.Atom), atomText(typ.Atom); plain(got) != plain(want) && got != noMembers {
			t.Errorf("%s:\ngot  %s\nwant %s", typ.Name, got, want)
		}
	}
	if seen < 400 {
		t.Errorf("only %d types in common", seen)
	}
}

// noMembers is a type without members. Client-go's generator takes it for a value of any type.
const noMembers = "{@__untyped_deduced_;}"

// otherwise are the types that the server's documents describe differently from client-go.
var otherwise = map[string]bool{
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":   true,
	"io.k8s.apimachinery.pkg.runtime.RawExtension":    true,
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": true,
}

// plain forgets the name of a type that client-go names otherwise.
func plain(text string) string {
	text = strings.ReplaceAll(text, "io.k8s.apimachinery.pkg.runtime.RawExtension", "__untyped_atomic_")
	return text
}

// atomText writes an atom in the form of the embedded lines.
func atomText(a smd.Atom) string {
	var b strings.Builder
	for _, s := range scalars {
		if a.Scalar != nil && *a.Scalar == s.is {
			b.WriteString(s.mark)
		}
	}
	if l := a.List; l != nil {
		b.WriteString("[")
		if l.ElementRelationship == smd.Atomic {
			b.WriteString("a")
		} else {
			b.WriteString("m")
			for _, k := range l.Keys {
				b.WriteString(k + ",")
			}
		}
		b.WriteString(refText(l.ElementType) + "]")
	}
	if m := a.Map; m != nil {
		b.WriteString("{" + map[smd.ElementRelationship]string{smd.Atomic: "a", smd.Separable: "p"}[m.ElementRelationship])
		b.WriteString(refText(m.ElementType))
		fields := slices.Clone(m.Fields)
		slices.SortFunc(fields, func(x, y smd.StructField) int { return strings.Compare(x.Name, y.Name) })
		for _, f := range fields {
			b.WriteString(f.Name)
			switch f.Default.(type) {
			case nil, map[string]any, map[any]any: // only scalars stand in for keys of lists
			default:
				d, err := json.Marshal(f.Default)
				if err != nil || bytes.ContainsAny(d, ":=") {
					panic(fmt.Sprintf("%s: %s: %v", f.Name, d, err))
				}
				b.WriteString("=" + string(d))
			}
			b.WriteString(":" + refText(f.Type))
		}
		b.WriteString("}")
	}
	return b.String()
}

func refText(t smd.TypeRef) string {
	switch {
	case t.NamedType != nil && t.ElementRelationship != nil:
		return "@" + *t.NamedType + "!" + map[smd.ElementRelationship]string{smd.Atomic: "a", smd.Separable: "p"}[*t.ElementRelationship] + ";"
	case t.NamedType != nil:
		return "@" + *t.NamedType + ";"
	case t.Inlined == smd.Atom{}:
		return "-"
	}
	return "(" + atomText(t.Inlined) + ")"
}
