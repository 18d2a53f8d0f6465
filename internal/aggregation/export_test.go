package aggregation

import "time"

// SetDocumentTimeout changes the time of requests for discovery documents, until the returned function is called.
func SetDocumentTimeout(d time.Duration) (restore func()) {
	before := documentTimeout
	documentTimeout = d
	return func() { documentTimeout = before }
}

// SetMaxRunning changes how many requests of an APIService are under way, until the returned function is called.
func SetMaxRunning(n int64) (restore func()) {
	before := maxRunning
	maxRunning = n
	return func() { maxRunning = before }
}

// SetMaxFetching changes how many bytes of documents are being fetched, until the returned function is called.
func SetMaxFetching(n int64) (restore func()) {
	before := maxFetching.Swap(n)
	return func() { maxFetching.Store(before) }
}

// The limits of documents, in bytes.
const (
	MaxDiscoveryBytes = maxDiscoveryBytes
	MaxOpenAPIBytes   = maxOpenAPIBytes
)
