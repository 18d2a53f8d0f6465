package openapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
)

// kindsMember is the member of a model with the kinds that it is the model of.
const kindsMember = "x-kubernetes-group-version-kind"

// contents are the members of a page.
type contents struct {
	rendering
	frame         tree // the document without them
	paths, models map[string]*member
	kinds         map[string][]byte // of the models, as members
}

// contents collects the members of a page.
func (d *documents) contents(ctx context.Context, key pageKey) (*contents, error) {
	c := &contents{rendering: rendering{3, key.form}, frame: d.frame(key.page), paths: map[string]*member{}, models: map[string]*member{}, kinds: map[string][]byte{}}
	pages := []string{key.page}
	if key.page == "v2" {
		c.version, pages = 2, d.order
	}
	custom := map[string]*member{}
	for _, page := range pages {
		paths, err := c.rendering.paths(d.ownOperations(page))
		if err != nil {
			return nil, err
		}
		maps.Copy(c.paths, paths)
		at := d.subjects[page]
		for _, t := range at.types {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p, err := d.partsOf(at, t, c.rendering)
			if err != nil {
				return nil, err
			}
			maps.Copy(c.paths, p.paths)
			maps.Copy(custom, p.models)
		}
	}
	for _, m := range c.paths {
		for _, name := range m.models {
			if err := d.reach(c, name, custom); err != nil {
				return nil, err
			}
		}
	}
	for name, list := range kinds(d.catalog, c.models, key.page) {
		text, err := c.encodeSchema(tree{kindsMember: list})
		if err != nil {
			return nil, err
		}
		c.kinds[name] = text
	}
	return c, nil
}

// reach adds a model, and those that it refers to.
func (d *documents) reach(c *contents, name string, custom map[string]*member) (err error) {
	if c.models[name] != nil {
		return nil
	}
	m := custom[name]
	if m == nil {
		if m, err = d.library.model(name, c.rendering); err != nil || m == nil {
			return err
		}
	}
	c.models[name] = m
	for _, next := range m.models {
		if err := d.reach(c, next, custom); err != nil {
			return err
		}
	}
	return nil
}

// Where the members belong in the frame of a document.
const pathsHere, modelsHere = "the paths", "the models"

// frame returns a page without its members.
func (d *documents) frame(page string) tree {
	switch {
	case page == "v2":
		return tree{"swagger": "2.0", "info": d.info(), "paths": pathsHere, "definitions": modelsHere,
			"securityDefinitions": tree{"BearerToken": bearer}, "security": []any{tree{"BearerToken": []any{}}}}
	case custom(d.subjects[page].types):
		return tree{"openapi": "3.0.0", "info": customInfo, "paths": pathsHere, "components": tree{"schemas": modelsHere}}
	}
	return tree{"openapi": "3.0.0", "info": d.info(), "paths": pathsHere,
		"components": tree{"schemas": modelsHere, "securitySchemes": tree{"BearerToken": bearer}}}
}

// each calls f for each member, in order. The value consists of the parts, which are valid during the call.
func (c *contents) each(all map[string]*member, f func(name string, value [][]byte) error) error {
	var buffer bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, after, err := all[name].unpack(&buffer)
		if err != nil {
			return err
		}
		value := [][]byte{before, c.kinds[name], after}
		if err := f(name, slices.DeleteFunc(value, func(b []byte) bool { return len(b) == 0 })); err != nil {
			return err
		}
	}
	return nil
}

// write writes the document.
func (c *contents) write(w io.Writer) error {
	if c.form == asProtobuf {
		return c.writeProtobuf(w)
	}
	frame, err := encode(c.frame)
	if err != nil {
		return err
	}
	head, rest, _ := bytes.Cut(frame, []byte(`"`+modelsHere+`"`)) // "components" and "definitions" precede "paths"
	middle, tail, _ := bytes.Cut(rest, []byte(`"`+pathsHere+`"`))
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := c.writeObject(w, c.models); err != nil {
		return err
	}
	if _, err := w.Write(middle); err != nil {
		return err
	}
	if err := c.writeObject(w, c.paths); err != nil {
		return err
	}
	_, err = w.Write(tail)
	return err
}

// writeObject writes a JSON object.
func (c *contents) writeObject(w io.Writer, all map[string]*member) error {
	separator := "{"
	err := c.each(all, func(name string, value [][]byte) error {
		quoted, err := encode(name)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s%s:{%s}", separator, quoted, bytes.Join(value, []byte(",")))
		separator = ","
		return err
	})
	if err != nil {
		return err
	}
	if separator == "{" {
		_, err = io.WriteString(w, "{}")
	} else {
		_, err = io.WriteString(w, "}")
	}
	return err
}
