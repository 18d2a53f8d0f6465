package apiextensions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxColumns is the maximum number of printer columns of a version. Others are not shown.
	MaxColumns = 256
	// MaxPathBytes is the maximum length of the JSONPath of a column.
	MaxPathBytes = 1024
)

// checkCosts refuses what would take too long to use. What is stored already has limits of its own where
// it is used.
func checkCosts(d *Definition) field.ErrorList {
	var errs field.ErrorList
	for i := range d.Spec.Versions {
		path := field.NewPath("spec", "versions").Index(i)
		errs = append(errs, checkColumns(d.Spec.Versions[i].AdditionalPrinterColumns, path.Child("additionalPrinterColumns"))...)
	}
	return errs
}

func checkColumns(columns []apiextensionsv1.CustomResourceColumnDefinition, path *field.Path) field.ErrorList {
	if len(columns) > MaxColumns {
		return field.ErrorList{field.TooMany(path, len(columns), MaxColumns)}
	}
	var errs field.ErrorList
	for i := range columns {
		if n := len(columns[i].JSONPath); n > MaxPathBytes {
			errs = append(errs, field.TooLong(path.Index(i).Child("jsonPath"), "", MaxPathBytes))
		}
	}
	return errs
}
