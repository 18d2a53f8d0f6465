// Package openapi serves the OpenAPI documents of a catalog, versions 2 and 3.
//
// The documents have three sources. The structure of the types (required fields, list types, merge
// keys, defaults, formats) is extracted from the published Go types at development time, and
// embedded compressed, without descriptions. The descriptions are those of the types' SwaggerDoc
// methods. The operations follow from the catalog. A page is made by the first request for it;
// until then a server holds only the compressed data. It is assembled from a part of each kind, see
// parts.go.
package openapi

//go:generate go run ../../tools/gen/openapi
