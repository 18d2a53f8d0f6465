package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// eventForm is a representation of watch events.
type eventForm struct {
	accept string
	query  string // to be added, with its &
	// cut splits off the first event of the received bytes, if it is complete.
	cut func(arrived []byte) (event, rest []byte, ok bool)
	// read parses an event.
	read func(event []byte) (watched, error)
}

// watched holds the checked parts of an event.
type watched struct {
	bookmark bool
	// foreign marks an event of an object that controllers create in every namespace,
	// possibly while the namespace is watched.
	foreign  bool
	revision uint64
	sent     []byte // digits; empty where the representation has no data of objects
}

var (
	jsonEvents     = eventForm{acceptJSON, "", cutLine, readJSONEvent}
	tableEvents    = eventForm{acceptTable, "&includeObject=Metadata", cutLine, readJSONEvent}
	protobufEvents = eventForm{acceptProtobuf, "", cutFrame, readProtobufEvent}
)

var (
	newline  = []byte("\n")
	typeKey  = []byte(`{"type":"`)
	sentKey  = []byte(`"sent":"`)
	cellsKey = []byte(`"cells":["`)
	// rootCA is the object that controllers create.
	rootCA     = []byte(`"name":"kube-root-ca.crt"`)
	rootCAName = "kube-root-ca.crt"
)

const (
	errorType = "ERROR"
	bookmark  = "BOOKMARK"
)

// eventHead bytes of an event hold its type and the object's name.
const eventHead = 256

func cutLine(arrived []byte) (event, rest []byte, ok bool) { return bytes.Cut(arrived, newline) }

// readJSONEvent reads an event whose object is JSON: itself, or a table.
func readJSONEvent(line []byte) (watched, error) {
	var e watched
	kind, ok := textAfter(line[:min(len(line), 64)], typeKey)
	if !ok || string(kind) == errorType {
		return e, fmt.Errorf("unexpected: %.300s", line)
	}
	e.bookmark = string(kind) == bookmark
	if e.revision, ok = revisionIn(line); !ok {
		return e, fmt.Errorf("an event without a resource version: %.300s", line)
	}
	e.sent, _ = textAfter(line, sentKey)
	name, table := textAfter(line, cellsKey)
	e.foreign = table && string(name) == rootCAName || bytes.Contains(line[:min(len(line), eventHead)], rootCA)
	return e, nil
}

// frameHead is the number of bytes that hold the length of an event in protobuf.
const frameHead = 4

func cutFrame(arrived []byte) (event, rest []byte, ok bool) {
	if len(arrived) < frameHead {
		return nil, arrived, false
	}
	end := frameHead + int(binary.BigEndian.Uint32(arrived))
	if len(arrived) < end {
		return nil, arrived, false
	}
	return arrived[frameHead:end], arrived[end:], true
}

// envelopePrefix precedes each protobuf message of Kubernetes.
var envelopePrefix = []byte("k8s\x00")

// sentField is the head of an entry of a map in protobuf: its key and the tag of its
// value.
var sentField = []byte("\x0a\x04sent\x12")

var errMessage = errors.New("an event is no message of Kubernetes")

// readProtobufEvent reads an event in protobuf: its type, and a raw object, which is
// an envelope around the message.
func readProtobufEvent(frame []byte) (watched, error) {
	var e watched
	kind, object := string(fieldOf(frame, 1)), fieldOf(frame, 2)
	envelope, ok := bytes.CutPrefix(fieldOf(object, 1), envelopePrefix)
	switch {
	case !ok:
		return e, errMessage
	case kind == errorType:
		return e, fmt.Errorf("unexpected: %.300q", envelope)
	}
	message := fieldOf(envelope, 2)
	meta := fieldOf(message, 1)
	var err error
	if e.revision, err = strconv.ParseUint(string(fieldOf(meta, 6)), 10, 64); err != nil {
		return e, fmt.Errorf("an event without a resource version: %.300q", frame)
	}
	e.bookmark = kind == bookmark
	e.foreign = string(fieldOf(meta, 1)) == rootCAName
	if i := bytes.LastIndex(message, sentField); i >= 0 {
		e.sent, _ = protowire.ConsumeBytes(message[i+len(sentField):])
	}
	return e, nil
}

// fieldOf returns the first bytes field of a message with a number, or nil.
func fieldOf(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		found, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if found == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			return value
		}
		if n = protowire.ConsumeFieldValue(found, kind, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
