//go:build dump

// Command dump writes the definitions that openapi-gen extracted, as compressed
// JSON. It leaves out descriptions that the types' SwaggerDoc methods return.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/openapi"
	"github.com/tidemark-dev/tidemark/tools/gen/openapi/dump/definitions"
)

func main() {
	if err := dump(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dump:", err)
		os.Exit(1)
	}
}

func dump(file string) error {
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + name) }
	documented := openapi.Documented(builtin.Catalog())
	all := map[string]any{}
	for name, d := range definitions.GetOpenAPIDefinitions(ref) {
		text, err := json.Marshal(d.Schema)
		if err != nil {
			return err
		}
		var schema map[string]any
		if err := json.Unmarshal(text, &schema); err != nil {
			return err
		}
		if documented[name] {
			strip(schema)
		}
		all[name] = schema
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Printf("%d schemas, %d bytes, %d compressed\n", len(all), len(text), b.Len())
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// strip removes the descriptions of a type and of its fields.
func strip(schema map[string]any) {
	delete(schema, "description")
	properties, _ := schema["properties"].(map[string]any)
	for _, p := range properties {
		delete(p.(map[string]any), "description")
	}
}
