// Package changes has the objects of the API's group tidemark.dev, the paths of fields, and the instants that name a state.
// The server and the commands share it. docs/formats/changes.md describes all of it.
package changes
