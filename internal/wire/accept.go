package wire

import (
	"strconv"
	"strings"
)

// Output is how an answer is to be written.
type Output struct {
	Media MediaType
	// Pretty asks for indented JSON. It comes from a parameter of the media type;
	// other ways to ask for it are the caller's to know.
	Pretty bool
}

// Offer is what an endpoint can answer with.
type Offer uint8

// The endpoints differ in the words with which they refuse.
const (
	// Objects are answers with one object.
	Objects Offer = iota
	// Lists are answers with a list, or a watch on it.
	Lists
	// Streams are watches.
	Streams
	// OnlyJSON has no other form.
	OnlyJSON
	// Documents are objects of endpoints that look at parameters first.
	Documents
)

// NotAcceptable tells why no clause of an Accept header can be served.
type NotAcceptable struct {
	// Message is for the client.
	Message string
	// Unknown: no clause names a media type that the endpoint has at all.
	Unknown bool
}

// Error implements error.
func (e *NotAcceptable) Error() string { return e.Message }

const (
	unknownText = "406: Not Acceptable\n\nAvailable representations: "
	onlyText    = "only the following media types are accepted: "
	objectTypes = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
	streamTypes = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
)

// Negotiate chooses among the clauses of an Accept header, as kube-apiserver
// does it (rows C7 and C8): first one clause has to name a known type literally,
// or be */*; then the clauses are tried in the order of their preference. A
// clause that asks for a form that is not served (a table, protobuf) is passed
// over. An error is a *NotAcceptable.
func Negotiate(header string, offer Offer) (Output, error) {
	switch header {
	case "", "application/json", "*/*":
		return Output{Media: JSON}, nil
	}
	if offer != Documents && !known(header, offer) {
		types := objectTypes
		switch offer {
		case OnlyJSON:
			types = string(JSON)
		case Lists, Streams:
			types += ", " + streamTypes
		}
		return Output{}, &NotAcceptable{Message: unknownText + types, Unknown: true}
	}
	var room [8]clause
	chosen := Output{}
	for _, c := range preferred(room[:0], header) {
		if out, ok := c.serve(offer); ok {
			chosen = out
			break
		}
	}
	switch {
	case chosen.Media == "":
		return Output{}, &NotAcceptable{Message: onlyText + objectTypes}
	case offer == Streams && chosen.Media != JSON:
		return Output{}, &NotAcceptable{Message: onlyText + streamTypes}
	}
	return chosen, nil
}

// known tells whether a clause names a type that the endpoint has. Parameters do
// not count, nor do wildcards of a half.
func known(header string, offer Offer) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		switch MediaType(strings.Trim(name, " ")) {
		case "*/*", JSON:
			return true
		case YAML, Protobuf:
			if offer != OnlyJSON {
				return true
			}
		}
	}
	return false
}

// clause is a part of an Accept header between commas.
type clause struct {
	major, minor string
	params       string // what follows the first semicolon
	q            float64
}

// maxClauses is how many clauses of a header count, for sorting them takes the
// square of that. Clients send up to a dozen.
const maxClauses = 64

// preferred appends the clauses that are well-formed, the preferred one first.
func preferred(to []clause, header string) []clause {
	for part := range strings.SplitSeq(header, ",") {
		if len(to) == maxClauses {
			break
		}
		c, ok := parseClause(part)
		if !ok {
			continue
		}
		// Insertion keeps the order of equal clauses. The order is that of
		// kube-apiserver, in which a type stands before a wildcard whatever its weight.
		to = append(to, c)
		for i := len(to) - 1; i > 0 && to[i].before(&to[i-1]); i-- {
			to[i], to[i-1] = to[i-1], to[i]
		}
	}
	return to
}

func parseClause(s string) (clause, bool) {
	s = strings.Trim(s, " ")
	name, params, _ := strings.Cut(s, ";")
	major, minor, _ := strings.Cut(name, "/")
	c := clause{major: strings.Trim(major, " "), minor: "*", params: params, q: 1}
	if minor == "" && c.major != "*" {
		return c, false
	}
	if minor != "" {
		var beyond string
		if minor, beyond, _ = strings.Cut(minor, "/"); beyond != "" {
			return c, false
		}
		c.minor = strings.Trim(minor, " ")
	}
	for key, value := range c.parameters() {
		if key == "q" {
			c.q, _ = strconv.ParseFloat(value, 32)
		}
	}
	return c, true
}

// before tells whether the clause is preferred to the other one.
func (c *clause) before(o *clause) bool {
	switch {
	case c.q > o.q:
		return true
	case c.major != "*" && o.major == "*":
		return true
	default:
		return c.minor != "*" && o.minor == "*"
	}
}

// parameters yields the well-formed parameters.
func (c *clause) parameters() func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for part := range strings.SplitSeq(c.params, ";") {
			key, rest, _ := strings.Cut(part, "=")
			value, beyond, _ := strings.Cut(rest, "=")
			if rest == "" || beyond != "" {
				continue
			}
			if key = strings.Trim(key, " "); key != "q" { // a weight with a space is no number, and counts as 0
				value = strings.Trim(value, " ")
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// serve returns what the clause asks for, when it can be had.
func (c *clause) serve(offer Offer) (Output, bool) {
	var out Output
	switch {
	case c.major == "*" && c.minor == "*", c.major == "application" && (c.minor == "*" || c.minor == "json"):
		out.Media = JSON
	case c.major == "application" && c.minor == "yaml" && offer != OnlyJSON:
		out.Media = YAML
	default:
		return out, false
	}
	for key, value := range c.parameters() {
		switch key {
		case "as":
			return out, false // tables and partial objects
		case "stream":
			if value != "watch" {
				return out, false
			}
		case "pretty":
			out.Pretty = value == "1"
		}
	}
	return out, true
}

// AcceptsAggregated tells whether the client of /api or /apis prefers the
// aggregated document to the plain one.
func AcceptsAggregated(header string) bool {
	if !strings.Contains(header, "APIGroupDiscoveryList") {
		return false
	}
	var room [8]clause
	for _, c := range preferred(room[:0], header) {
		var as, group, version string
		for key, value := range c.parameters() {
			switch key {
			case "as":
				as = value
			case "g":
				group = value
			case "v":
				version = value
			}
		}
		if _, plain := c.serve(Documents); plain {
			return false
		}
		wanted := as == "APIGroupDiscoveryList" && group == "apidiscovery.k8s.io" && version == "v2"
		if wanted && c.major == "application" && c.minor == "json" {
			return true
		}
	}
	return false
}

// AcceptsGzip tells whether an Accept-Encoding header allows gzip.
func AcceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, weighed := strings.Cut(part, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		if !weighed {
			return true
		}
		q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(params), "q="), 32)
		return err == nil && q > 0
	}
	return false
}
