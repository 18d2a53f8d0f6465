// Package history finds the changes of objects that a client asks for, and shows them as the objects of the API's group
// tidemark.dev. It knows the store, schemas and the selectors of a request. Whose changes a user may see is decided by a
// function of the caller.
package history
