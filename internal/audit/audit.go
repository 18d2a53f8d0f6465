// Package audit records requests: their events by a policy, written to a log file and sent to a
// webhook. Formats, messages and defaults are those of kube-apiserver (audit.k8s.io/v1).
//
// A request has one Event, which the HTTP layer fills while it serves the request. At each stage
// the Auditor encodes the event once, and passes the bytes to its back ends:
//
//	policy.go, rules.go     the level of a request
//	event.go, encode.go     an event as JSON; legacy.go as a line of text
//	auditor.go              from an event to the back ends; truncation
//	batch.go                the mode batch: a bounded buffer and one goroutine that empties it
//	file.go                 the log file, with rotation; webhook.go the webhook
package audit

// Level is how much of a request is recorded.
type Level uint8

// The levels, each with all that the one before it records.
const (
	None            Level = iota // no event
	Metadata                     // who, what, when, and the status of the response
	Request                      // the body of the request
	RequestResponse              // the response
)

var levelNames = [...]string{"None", "Metadata", "Request", "RequestResponse"}

// String returns the name of the level in a policy.
func (l Level) String() string { return levelNames[l] }

// Stage is a step of a request that has an event.
type Stage uint8

// The stages.
const (
	// RequestReceived is before the request is authorized.
	RequestReceived Stage = iota
	// ResponseStarted is when the headers of a response are sent that can take long: of a watch,
	// of a log. It is also the only stage of a request that is not authenticated.
	ResponseStarted
	// ResponseComplete is when the response is complete.
	ResponseComplete
	// Panic is when a panic ended the request.
	Panic
)

var stageNames = [...]string{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}

// String returns the name of the stage in a policy.
func (s Stage) String() string { return stageNames[s] }
