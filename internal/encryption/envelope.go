package encryption

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"google.golang.org/protobuf/encoding/protowire"
)

// An envelope is a value encrypted by a KMS plugin's data key, as kube-apiserver stores it: the
// protobuf message EncryptedObject.
//
//	1 encryptedData           what data key and value give
//	2 keyID                   of the plugin's key
//	3 encryptedDEKSource      the seed or data key, encrypted by the plugin
//	4 annotations             of the plugin, a map
//	5 encryptedDEKSourceType  0: a key of AES-GCM, 1: a seed
//
// From a seed of 32 bytes or more and 32 random bytes in front of the data, HKDF-Expand with
// SHA-256 derives a key of AES-GCM for each value.
type envelope struct {
	data        []byte
	keyID       string
	source      []byte // encryptedDEKSource
	annotations map[string][]byte
	kind        sourceKind
}

type sourceKind uint64

const (
	gcmKey  sourceKind = 0
	gcmSeed sourceKind = 1
)

// Limits of the protocol, in bytes.
const (
	maxKeyID       = 1 << 10
	maxSource      = 1 << 10
	maxAnnotations = 32 << 10
	seedSize       = 32
	infoSize       = 32
)

// Numbers of the fields.
const (
	fieldData protowire.Number = 1 + iota
	fieldKeyID
	fieldSource
	fieldAnnotations
	fieldKind
)

var errEnvelope = errors.New("the stored data is not an encrypted object of a KMS plugin")

// readEnvelope decodes and checks an envelope, whose slices are part of b.
func readEnvelope(b []byte) (envelope, error) {
	var e envelope
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return e, errEnvelope
		}
		b = b[n:]
		if number >= fieldData && number <= fieldAnnotations && kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(b)
			if n < 0 || !e.set(number, value) {
				return e, errEnvelope
			}
			b = b[n:]
			continue
		}
		if number == fieldKind && kind == protowire.VarintType {
			value, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return e, errEnvelope
			}
			e.kind, b = sourceKind(value), b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return e, errEnvelope
		}
		b = b[n:]
	}
	if len(e.data) == 0 {
		return e, errors.New("encrypted data is empty")
	}
	return e, e.check()
}

func (e *envelope) set(number protowire.Number, value []byte) bool {
	switch number {
	case fieldData:
		e.data = value
	case fieldKeyID:
		e.keyID = string(value[:min(len(value), maxKeyID+1)])
	case fieldSource:
		e.source = value
	case fieldAnnotations:
		return e.annotate(value)
	}
	return true
}

// annotate adds an entry of the map of annotations.
func (e *envelope) annotate(b []byte) bool {
	var key, value []byte
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return false
			}
			b = b[n:]
			continue
		}
		field, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch number {
		case 1:
			key = field
		case 2:
			value = field
		}
	}
	if e.annotations == nil {
		e.annotations = map[string][]byte{}
	}
	e.annotations[string(key)] = value
	return true
}

// check applies the limits of the protocol to everything but the data.
func (e *envelope) check() error {
	switch {
	case e.kind > gcmSeed:
		return fmt.Errorf("unknown encryptedDEKSourceType: %d", e.kind)
	case len(e.source) == 0:
		return errors.New("failed to validate encrypted DEK source: encrypted DEK source is empty")
	case len(e.source) > maxSource:
		return fmt.Errorf("failed to validate encrypted DEK source: encrypted DEK source is %d bytes, which exceeds the max size of %d", len(e.source), maxSource)
	}
	if err := checkKeyID(e.keyID); err != nil {
		return fmt.Errorf("failed to validate key id: %w", err)
	}
	size := 0
	for k, v := range e.annotations {
		size += len(k) + len(v)
	}
	if size > maxAnnotations {
		return fmt.Errorf("failed to validate annotations: total size of annotations is %d, which exceeds the max size of %d", size, maxAnnotations)
	}
	for k := range e.annotations {
		if errs := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), k); len(errs) > 0 {
			return fmt.Errorf("failed to validate annotations: %w", errs.ToAggregate())
		}
	}
	return nil
}

func checkKeyID(id string) error {
	switch {
	case id == "":
		return errors.New("keyID is empty")
	case len(id) > maxKeyID:
		return fmt.Errorf("keyID is %d bytes, which exceeds the max size of %d", len(id), maxKeyID)
	}
	return nil
}

// tail encodes everything but the data.
func (e *envelope) tail() []byte {
	b := protowire.AppendTag(nil, fieldKeyID, protowire.BytesType)
	b = protowire.AppendString(b, e.keyID)
	b = protowire.AppendTag(b, fieldSource, protowire.BytesType)
	b = protowire.AppendBytes(b, e.source)
	for _, k := range slices.Sorted(maps.Keys(e.annotations)) {
		entry := protowire.AppendTag(nil, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, k)
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendBytes(entry, e.annotations[k])
		b = protowire.AppendTag(b, fieldAnnotations, protowire.BytesType)
		b = protowire.AppendBytes(b, entry)
	}
	if e.kind != gcmKey {
		b = protowire.AppendTag(b, fieldKind, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(e.kind))
	}
	return b
}

// cacheKey identifies the data key of an envelope. Lengths keep different ones apart.
func (e *envelope) cacheKey() [sha256.Size]byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(e.kind))
	add := func(p []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	add(e.source)
	add([]byte(e.keyID))
	for _, k := range slices.Sorted(maps.Keys(e.annotations)) {
		add([]byte(k))
		add(e.annotations[k])
	}
	return sha256.Sum256(b)
}

// dataKey encrypts the data of envelopes.
type dataKey interface {
	encrypt(dst, value, place []byte) ([]byte, error)
	open(ctx context.Context, encrypted, place []byte) ([]byte, error)
}

// newDataKey makes a data key from the bytes that the plugin decrypted.
func newDataKey(kind sourceKind, key []byte) (dataKey, error) {
	if kind == gcmKey {
		return newGCM(key)
	}
	if len(key) < seedSize {
		return nil, fmt.Errorf("invalid seed length %d used for key generation", len(key))
	}
	return seed(bytes.Clone(key)), nil
}

// seed is a data key that has a key of its own for each value.
type seed []byte

func (s seed) derive(info []byte) (gcm, error) {
	key, err := hkdf.Expand(sha256.New, s, string(info), 32)
	if err != nil {
		return gcm{}, err
	}
	return newGCM(key)
}

func (s seed) encrypt(dst, value, place []byte) ([]byte, error) {
	dst, info, err := random(dst, infoSize)
	if err != nil {
		return nil, err
	}
	g, err := s.derive(info)
	if err != nil {
		return nil, err
	}
	return g.encrypt(dst, value, place)
}

func (s seed) open(ctx context.Context, encrypted, place []byte) ([]byte, error) {
	if len(encrypted) < infoSize {
		return nil, errShort
	}
	g, err := s.derive(encrypted[:infoSize])
	if err != nil {
		return nil, err
	}
	return g.open(ctx, encrypted[infoSize:], place)
}
