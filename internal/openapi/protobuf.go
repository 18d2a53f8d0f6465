package openapi

import (
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

// protobuf returns the document.
func (c *contents) protobuf() ([]byte, error) {
	if c.version == 2 {
		return c.protobufV2()
	}
	return c.protobufV3()
}

func (c *contents) protobufV2() ([]byte, error) {
	c.frame["paths"], c.frame["definitions"] = tree{}, tree{}
	frame, err := parseV2(c.frame)
	if err != nil {
		return nil, err
	}
	paths, err := c.messages(c.paths, 2)
	if err != nil {
		return nil, err
	}
	definitions, err := c.messages(c.models, 1)
	if err != nil {
		return nil, err
	}
	b, err := proto.Marshal(&openapi_v2.Document{Swagger: frame.Swagger, Info: frame.Info})
	if err != nil {
		return nil, err
	}
	b = appendField(appendField(b, 8, paths), 9, definitions)
	return proto.MarshalOptions{}.MarshalAppend(b, &openapi_v2.Document{Security: frame.Security, SecurityDefinitions: frame.SecurityDefinitions})
}

func (c *contents) protobufV3() ([]byte, error) {
	components := c.frame["components"].(tree)
	delete(components, "schemas")
	c.frame["paths"] = tree{}
	frame, err := parseV3(c.frame)
	if err != nil {
		return nil, err
	}
	paths, err := c.messages(c.paths, 1)
	if err != nil {
		return nil, err
	}
	schemas, err := c.messages(c.models, 1, 1) // each is one choice of a schema or a reference
	if err != nil {
		return nil, err
	}
	rest, err := proto.Marshal(frame.Components)
	if err != nil {
		return nil, err
	}
	b, err := proto.Marshal(&openapi_v3.Document{Openapi: frame.Openapi, Info: frame.Info})
	if err != nil {
		return nil, err
	}
	return appendField(appendField(b, 4, paths), 5, appendField(nil, 1, schemas), rest), nil
}

// messages returns members as a repeated field of messages with a name and a value. Within are the numbers of
// the fields around the value.
func (c *contents) messages(all map[string]*member, number protowire.Number, within ...protowire.Number) ([]byte, error) {
	var out, entry []byte
	err := c.each(all, func(name string, value [][]byte) error {
		for _, n := range within {
			value = [][]byte{appendField(nil, n, value...)}
		}
		entry = appendField(appendField(entry[:0], 1, []byte(name)), 2, value...)
		out = appendField(out, number, entry)
		return nil
	})
	return out, err
}

// appendField appends a field whose value is the concatenation of the parts.
func appendField(b []byte, number protowire.Number, parts ...[]byte) []byte {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(size))
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}
