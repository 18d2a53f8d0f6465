// Package aggregation serves the APIs of extension servers: requests of a group and version whose APIService names a Service
// are forwarded to that Service.
//
//   - Table is the routing table, an immutable value that one pointer holds. A request of a built-in kind pays for one load of
//     that pointer. Three goroutines follow the collections of APIServices, Services and EndpointSlices, and make the
//     next table.
//   - Each APIService with a Service has a Backend, whose goroutine checks whether it is available (check.go), and writes the
//     condition if that changed. Another Service, port or certificate in the spec makes a new backend.
//   - All backends of one Service share a source of documents (documents.go): discovery and OpenAPI. They are fetched in the
//     background, within limits, and merged on request.
//   - Backend.Serve forwards a request (proxy.go), and streams the bodies of the request and of the response.
//
// An extension server is not trusted: it may be slow, lie, and return anything. So each dialled address is checked by the
// rules of webhooks, and must not be one of the server itself; documents have a maximum size and are read for the groups and
// versions of its APIServices alone; redirects are not followed; and an error quotes nothing that it sent.
package aggregation
