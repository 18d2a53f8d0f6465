package aggregation

import "time"

// SetDocumentTimeout changes the time of requests for discovery documents, until the returned function is called.
func SetDocumentTimeout(d time.Duration) (restore func()) {
	before := documentTimeout
	documentTimeout = d
	return func() { documentTimeout = before }
}

// The limits of documents, in bytes.
const (
	MaxDiscoveryBytes = maxDiscoveryBytes
	MaxOpenAPIBytes   = maxOpenAPIBytes
)
