// Package openapi serves the OpenAPI documents of a catalog, versions 2 and 3.
//
// What the documents say comes from three places. The structure of the types
// (required fields, list types, merge keys, defaults, formats) is extracted from
// the published Go types at development time and embedded, compressed, without
// descriptions. The descriptions are asked from the types' own SwaggerDoc methods.
// The operations follow from the rows of the catalog. All of it is put together
// when a page is first asked for; an idle server carries the compressed data only.
package openapi

//go:generate go run ../../tools/gen/openapi
