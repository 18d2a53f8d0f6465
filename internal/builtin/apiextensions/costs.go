package apiextensions

import (
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/celenv"
	"github.com/tidemark-dev/tidemark/internal/regex"
)

const (
	// MaxColumns is the maximum number of printer columns of a version. A stored definition may
	// have more, which are not shown.
	MaxColumns = 256
	// MaxPathBytes is the maximum length of a JSONPath of a column, a selectable field or a
	// fieldPath, in bytes. The library ignores everything from a name of 64 KiB on, and panics if
	// nothing precedes it.
	MaxPathBytes = 1024
	// maxDefaultWork is the maximum product of the size of the largest pattern and the bytes of all
	// defaults, which that pattern may have to match.
	maxDefaultWork = 50_000_000
)

// checkCosts rejects definitions that would take too long to use. Stored definitions are limited
// where they are used.
func checkCosts(d *Definition) field.ErrorList {
	var errs field.ErrorList
	work := 0 // to check the rules
	for i := range d.Spec.Versions {
		path := field.NewPath("spec", "versions").Index(i)
		errs = append(errs, checkColumns(d.Spec.Versions[i].AdditionalPrinterColumns, path.Child("additionalPrinterColumns"))...)
		for j, f := range d.Spec.Versions[i].SelectableFields {
			errs = append(errs, checkPath(f.JSONPath, path.Child("selectableFields").Index(j).Child("jsonPath"))...)
		}
		if s := d.Spec.Versions[i].Schema; s != nil && s.OpenAPIV3Schema != nil {
			c := schemaCosts{}
			c.add(s.OpenAPIV3Schema, path.Child("schema", "openAPIV3Schema"))
			if len(c.errs) == 0 && c.largest*c.defaults > maxDefaultWork {
				c.errs = append(c.errs, field.Invalid(path.Child("schema", "openAPIV3Schema"), nil, "the patterns are too large for defaults of this size"))
			}
			errs = append(errs, c.errs...)
			errs = append(errs, celenv.CheckRules(s.OpenAPIV3Schema, path.Child("schema", "openAPIV3Schema"), &work)...)
		}
	}
	return errs
}

// schemaCosts are the costs of a schema.
type schemaCosts struct {
	errs     field.ErrorList
	largest  int // size of a pattern
	defaults int // bytes
}

func (c *schemaCosts) add(s *apiextensionsv1.JSONSchemaProps, path *field.Path) {
	if s == nil {
		return
	}
	if s.Pattern != "" {
		size, err := regex.Size(s.Pattern)
		c.largest = max(c.largest, size)
		switch {
		case errors.Is(err, regex.ErrParseWork): // the library reports the other errors
			c.errs = append(c.errs, field.Invalid(path.Child("pattern"), s.Pattern, err.Error()))
		case size > regex.MaxSize:
			c.errs = append(c.errs, field.Invalid(path.Child("pattern"), s.Pattern, fmt.Sprintf("must have at most %d instructions when it is compiled, but has %d", regex.MaxSize, size)))
		}
	}
	for i, r := range s.XValidations {
		c.errs = append(c.errs, checkPath(r.FieldPath, path.Child("x-kubernetes-validations").Index(i).Child("fieldPath"))...)
	}
	if s.Default != nil {
		c.defaults += len(s.Default.Raw)
	}
	for name, p := range s.Properties {
		c.add(&p, path.Child("properties").Key(name))
	}
	for i := range s.AllOf {
		c.add(&s.AllOf[i], path.Child("allOf").Index(i))
	}
	for i := range s.AnyOf {
		c.add(&s.AnyOf[i], path.Child("anyOf").Index(i))
	}
	for i := range s.OneOf {
		c.add(&s.OneOf[i], path.Child("oneOf").Index(i))
	}
	c.add(s.Not, path.Child("not"))
	if s.Items != nil {
		c.add(s.Items.Schema, path.Child("items"))
	}
	if s.AdditionalProperties != nil {
		c.add(s.AdditionalProperties.Schema, path.Child("additionalProperties"))
	}
}

func checkColumns(columns []apiextensionsv1.CustomResourceColumnDefinition, path *field.Path) field.ErrorList {
	if len(columns) > MaxColumns {
		return field.ErrorList{field.TooMany(path, len(columns), MaxColumns)}
	}
	var errs field.ErrorList
	for i := range columns {
		errs = append(errs, checkPath(columns[i].JSONPath, path.Index(i).Child("jsonPath"))...)
	}
	return errs
}

func checkPath(text string, path *field.Path) field.ErrorList {
	if len(text) > MaxPathBytes {
		return field.ErrorList{field.TooLong(path, "", MaxPathBytes)}
	}
	return nil
}
