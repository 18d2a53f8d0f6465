// Package history finds the changes of objects that a client asks for, and shows them as the objects of the API's group
// tidemark.dev. It knows the store, schemas and the selectors of a request. The caller decides
// which collections a user may read: see Reader.May.
package history
