package openapi

import (
	"io"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The protobuf form of a document is assembled like its JSON. A message is the concatenation of its
// fields, so the parts of a model are messages of the same type, each with some of the fields.

// encodePath returns the members of a path.
func (r rendering) encodePath(item tree) ([]byte, error) {
	if r.form == asJSON {
		return encodeMembers(item)
	}
	const path = "/" // of any document
	if r.version == 2 {
		doc, err := parseV2(tree{"paths": tree{path: item}})
		if err != nil {
			return nil, err
		}
		return proto.Marshal(doc.Paths.Path[0].Value)
	}
	doc, err := parseV3(tree{"paths": tree{path: item}})
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc.Paths.Path[0].Value)
}

// encodeSchema returns some members of a schema.
func (r rendering) encodeSchema(part tree) ([]byte, error) {
	if r.form == asJSON {
		return encodeMembers(part)
	}
	const model = "model" // any name
	if r.version == 2 {
		doc, err := parseV2(tree{"paths": tree{}, "definitions": tree{model: part}})
		if err != nil {
			return nil, err
		}
		return proto.Marshal(doc.Definitions.AdditionalProperties[0].Value)
	}
	doc, err := parseV3(tree{"paths": tree{}, "components": tree{"schemas": tree{model: part}}})
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc.Components.Schemas.AdditionalProperties[0].Value.GetSchema())
}

// encodeMembers returns the members of a JSON object, without braces.
func encodeMembers(v tree) ([]byte, error) {
	text, err := encode(v)
	if err != nil {
		return nil, err
	}
	return text[1 : len(text)-1], nil
}

// parseV2 parses a document. Its required members may be missing.
func parseV2(v tree) (*openapi_v2.Document, error) {
	return parse(v, tree{"swagger": "2.0", "info": customInfo}, openapi_v2.ParseDocument)
}

func parseV3(v tree) (*openapi_v3.Document, error) {
	return parse(v, tree{"openapi": "3.0.0", "info": customInfo}, openapi_v3.ParseDocument)
}

func parse[D any](v, required tree, parser func([]byte) (D, error)) (D, error) {
	for name, value := range required {
		if v[name] == nil {
			v[name] = value
		}
	}
	text, err := encode(v)
	if err != nil {
		var none D
		return none, err
	}
	return parser(text)
}

// writeProtobuf writes the document. Its members are large together, so they are written one after the other.
func (c *contents) writeProtobuf(w io.Writer) error {
	if c.version == 2 {
		return c.writeProtobufV2(w)
	}
	return c.writeProtobufV3(w)
}

func (c *contents) writeProtobufV2(w io.Writer) error {
	c.frame["paths"], c.frame["definitions"] = tree{}, tree{}
	frame, err := parseV2(c.frame)
	if err != nil {
		return err
	}
	head, err := proto.Marshal(&openapi_v2.Document{Swagger: frame.Swagger, Info: frame.Info})
	if err != nil {
		return err
	}
	if _, err := w.Write(appendHead(head, 8, c.messagesSize(c.paths, 2))); err != nil {
		return err
	}
	if err := c.writeMessages(w, c.paths, 2); err != nil {
		return err
	}
	if _, err := w.Write(appendHead(nil, 9, c.messagesSize(c.models, 1))); err != nil {
		return err
	}
	if err := c.writeMessages(w, c.models, 1); err != nil {
		return err
	}
	tail, err := proto.Marshal(&openapi_v2.Document{Security: frame.Security, SecurityDefinitions: frame.SecurityDefinitions})
	if err != nil {
		return err
	}
	_, err = w.Write(tail)
	return err
}

func (c *contents) writeProtobufV3(w io.Writer) error {
	components := c.frame["components"].(tree)
	delete(components, "schemas")
	c.frame["paths"] = tree{}
	frame, err := parseV3(c.frame)
	if err != nil {
		return err
	}
	rest, err := proto.Marshal(frame.Components)
	if err != nil {
		return err
	}
	head, err := proto.Marshal(&openapi_v3.Document{Openapi: frame.Openapi, Info: frame.Info})
	if err != nil {
		return err
	}
	if _, err := w.Write(appendHead(head, 4, c.messagesSize(c.paths, 1))); err != nil {
		return err
	}
	if err := c.writeMessages(w, c.paths, 1); err != nil {
		return err
	}
	schemas := c.messagesSize(c.models, 1, 1) // each is one choice of a schema or a reference
	if _, err := w.Write(appendHead(appendHead(nil, 5, fieldSize(1, schemas)+len(rest)), 1, schemas)); err != nil {
		return err
	}
	if err := c.writeMessages(w, c.models, 1, 1); err != nil {
		return err
	}
	_, err = w.Write(rest)
	return err
}

// valueSize returns the bytes of a member that is within fields of the numbers.
func (c *contents) valueSize(name string, m *member, within []protowire.Number) int {
	size := m.size + len(c.kinds[name])
	for _, n := range within {
		size = fieldSize(n, size)
	}
	return size
}

func entrySize(name string, value int) int { return fieldSize(1, len(name)) + fieldSize(2, value) }

// messagesSize returns how many bytes writeMessages writes.
func (c *contents) messagesSize(all map[string]*member, number protowire.Number, within ...protowire.Number) (n int) {
	for name, m := range all {
		n += fieldSize(number, entrySize(name, c.valueSize(name, m, within)))
	}
	return n
}

// writeMessages writes members as a repeated field of messages with a name and a value. Within are the numbers of the
// fields around the value, from the inside.
func (c *contents) writeMessages(w io.Writer, all map[string]*member, number protowire.Number, within ...protowire.Number) error {
	var head []byte
	return c.each(all, func(name string, value [][]byte) error {
		size := c.valueSize(name, all[name], within)
		head = appendHead(head[:0], number, entrySize(name, size))
		head = append(appendHead(head, 1, len(name)), name...)
		head = appendHead(head, 2, size)
		for i := len(within) - 1; i >= 0; i-- {
			size = c.valueSize(name, all[name], within[:i])
			head = appendHead(head, within[i], size)
		}
		for _, part := range append([][]byte{head}, value...) {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendHead appends the number of the field and the size, which precede a value.
func appendHead(b []byte, number protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(size))
}

// fieldSize returns the bytes of a field with a value of the size.
func fieldSize(number protowire.Number, size int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(size)
}
