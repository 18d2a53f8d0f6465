package crd

import (
	"bytes"
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiextensions"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

var metadataTexts = metav1.ObjectMeta{}.SwaggerDoc()

// ageOnly has the columns, after the name, of a version that defines none.
var ageOnly = []apiextensionsv1.CustomResourceColumnDefinition{
	{Name: "Age", Type: "date", Description: metadataTexts["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"},
}

// column is a column of a table.
type column struct {
	kind string
	path []jsonpath.Node
}

// columns returns the columns of the version. Paths are parsed when they are first needed.
func (v *version) columns() *resource.Columns {
	own := v.Columns
	if own == nil {
		own = ageOnly
	}
	own = own[:min(len(own), apiextensions.MaxColumns)]
	definitions := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: metadataTexts["name"]}}
	parse := sync.OnceValue(func() []column { return parseColumns(own) })
	shown := sync.OnceValue(func() []byte {
		for _, c := range own[:len(parse())] {
			text := c.Description
			if text == "" {
				text = "Custom resource definition column (in JSONPath format): " + c.JSONPath
			}
			definitions = append(definitions, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: text, Priority: c.Priority})
		}
		return mustMarshal(definitions)
	})
	return &resource.Columns{
		Definitions: shown,
		Cells: func(o runtime.Object, row *resource.Row) {
			object := o.(*Object)
			row.String(object.Name)
			var allowed *allowance
			all := parse()
			for _, c := range all {
				if allowed == nil {
					allowed = newAllowance(object.whole(), len(all))
				}
				c.cell(allowed, row)
			}
		},
	}
}

// parseColumns parses the paths. The first invalid path ends the table.
func parseColumns(all []apiextensionsv1.CustomResourceColumnDefinition) []column {
	var made []column
	for _, c := range all {
		path, err := parsePath(c.JSONPath)
		if err != nil {
			break
		}
		made = append(made, column{c.Type, path})
	}
	return made
}

// cell writes the cell of an object. It is null if the path finds no value, or if the row takes too much work.
func (c *column) cell(of *allowance, row *resource.Row) {
	results, err := (&evaluation{allowance: of}).find(of.object, c.path)
	if err != nil || len(results) == 0 || len(results[0]) == 0 || of.print(0) != nil {
		row.Null()
		return
	}
	value := results[0][0]
	if c.kind == "string" {
		if text, ok := value.(string); ok {
			if of.print(len(text)) != nil {
				row.Null()
				return
			}
			row.String(text)
			return
		}
		var b bytes.Buffer
		if jsonpath.New("").PrintResults(&b, []reflect.Value{reflect.ValueOf(value)}) != nil || of.print(b.Len()) != nil {
			row.Null()
			return
		}
		row.String(b.String())
		return
	}
	cellOf(c.kind, value, row)
}

func cellOf(kind string, value any, row *resource.Row) {
	switch v := value.(type) {
	case int64:
		switch kind {
		case "integer":
			row.Int(v)
			return
		case "number":
			row.Number(float64(v))
			return
		}
	case float64:
		switch kind {
		case "integer":
			row.Int(int64(v))
			return
		case "number":
			row.Number(v)
			return
		}
	case bool:
		if kind == "boolean" {
			row.Bool(v)
			return
		}
	case string:
		if kind == "date" {
			var at metav1.Time
			if err := at.UnmarshalQueryParameter(v); err != nil {
				row.String("<invalid>")
				return
			}
			row.Age(at.Time)
			return
		}
	}
	row.Null()
}

// whole returns the object as a tree with all metadata.
func (o *Object) whole() map[string]any {
	all := o.tree()
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.ObjectMeta)
	if err == nil {
		all["metadata"] = metadata
	}
	return all
}
