package wire

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// protobufPrefix is the magic number of Kubernetes' protobuf.
var protobufPrefix = []byte{0x6b, 0x38, 0x73, 0x00}

// OpenEnvelope decodes the envelope of a protobuf message. Raw is the message itself.
func OpenEnvelope(body []byte) (*runtime.Unknown, error) {
	if len(body) == 0 {
		return nil, errors.New("empty data")
	}
	raw, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return nil, fmt.Errorf("provided data does not appear to be a protobuf message, expected prefix %v", protobufPrefix)
	}
	if len(raw) == 0 {
		return nil, errors.New("empty body")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(raw); err != nil {
		return nil, err
	}
	switch {
	case envelope.ContentEncoding != "":
		return nil, fmt.Errorf("content in the encoding %q is not supported", envelope.ContentEncoding)
	case envelope.ContentType != "" && envelope.ContentType != string(Protobuf):
		return nil, fmt.Errorf("content of the type %q is not supported", envelope.ContentType)
	}
	return &envelope, nil
}
