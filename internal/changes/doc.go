// Package changes has what the API and the commands say about changes of objects: the messages, the paths of fields,
// and the instants that name a state.
package changes
