package oidc

import (
	"encoding/json"
	"errors"
)

// claims are the claims of a token, by name. The names of claims are case-sensitive.
type claims map[string]json.RawMessage

var errNoClaim = errors.New("claim not present")

// decode decodes a claim.
func (c claims) decode(name string, into any) error {
	text, ok := c[name]
	if !ok {
		return errNoClaim
	}
	return json.Unmarshal(text, into)
}

// text decodes a claim that must be a string.
func (c claims) text(name string) (string, error) {
	var s string
	err := c.decode(name, &s)
	return s, err
}

// oneOrMore is a list of strings, or a single string.
type oneOrMore []string

func (s *oneOrMore) UnmarshalJSON(b []byte) error {
	var all []string
	if json.Unmarshal(b, &all) == nil {
		*s = all
		return nil
	}
	var one string
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*s = oneOrMore{one}
	return nil
}
