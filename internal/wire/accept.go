package wire

import (
	"strconv"
	"strings"
)

// Output is how an answer is to be written. The zero value is no answer.
type Output struct {
	Media MediaType
	// Pretty asks for indented JSON. It comes from a parameter of the media type;
	// other ways to ask for it are the caller's to know.
	Pretty bool
	// Form is what of an object is asked for.
	Form Form
	// Beta: the form is that of meta.k8s.io/v1beta1, not v1.
	Beta bool
}

// Form is what of an object or a list is shown.
type Form uint8

// The forms.
const (
	// Whole is the object or the list itself.
	Whole Form = iota
	// Partial is a PartialObjectMetadata.
	Partial
	// PartialList is a PartialObjectMetadataList.
	PartialList
	// Table is rows of cells for people to read.
	Table
)

// forms are the kinds of meta.k8s.io that a parameter of Accept asks for.
var forms = map[string]Form{
	"PartialObjectMetadata":     Partial,
	"PartialObjectMetadataList": PartialList,
	"Table":                     Table,
}

// Offer is what an endpoint can answer with.
type Offer uint8

// The endpoints differ in what they can do and in the words with which they refuse.
const (
	// Objects are answers with one object.
	Objects Offer = iota
	// Lists are answers with a list.
	Lists
	// Streams are watches.
	Streams
	// Trees are objects, lists and watches of kinds that only JSON can say: custom
	// resources. Their metadata alone can be had as that of any kind.
	Trees
	// TreeStreams are watches of them.
	TreeStreams
	// Answers are objects that are never stored: there are no tables of them.
	Answers
	// Discovery is documents about what is served, and about nothing but that.
	Discovery
	// OnlyJSON has no other form.
	OnlyJSON
	// Documents are objects of endpoints that look at parameters first; errors too.
	Documents
)

const (
	unknownText = "406: Not Acceptable\n\nAvailable representations: "
	onlyText    = "only the following media types are accepted: "
	objectTypes = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
	streamTypes = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
)

// offers say what each kind of endpoint can do.
var offers = [...]struct {
	// known are the types of which a clause has to name one literally; empty: nobody
	// looks.
	known string
	// forms are the forms other than Whole, tables among them.
	forms, tables bool
	// server is the version of the API that a parameter may ask for.
	server string
	// json: there is no other medium.
	json bool
	// trees: whole objects have no messages.
	trees bool
}{
	Objects:     {known: objectTypes, forms: true, tables: true, server: "v1"},
	Lists:       {known: objectTypes + ", " + streamTypes, forms: true, tables: true, server: "v1"},
	Streams:     {known: objectTypes + ", " + streamTypes, forms: true, tables: true, server: "v1"},
	Trees:       {forms: true, tables: true, server: "v1", trees: true},
	TreeStreams: {forms: true, tables: true, server: "v1", trees: true},
	Answers:     {known: objectTypes, forms: true, server: "v1"},
	Discovery:   {known: objectTypes},
	OnlyJSON:    {known: string(JSON), json: true},
	Documents:   {},
}

// media are the serializations, in the order in which a wildcard tries them.
var media = [...]struct {
	media  MediaType
	minor  string // after application/
	stream bool   // there are watches in it
	tables bool   // there are tables in it
}{
	{JSON, "json", true, true},
	{YAML, "yaml", false, true},
	{Protobuf, "vnd.kubernetes.protobuf", true, false},
}

// NotAcceptable tells why no clause of an Accept header can be served.
type NotAcceptable struct {
	// Message is for the client.
	Message string
	// Unknown: no clause names a media type that the endpoint has at all.
	Unknown bool
}

// Error implements error.
func (e *NotAcceptable) Error() string { return e.Message }

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
	if types := offers[offer].known; types != "" && !known(header, offers[offer].json) {
		return Output{}, &NotAcceptable{Message: unknownText + types, Unknown: true}
	}
	if offers[offer].json {
		return Output{Media: JSON}, nil // nobody looks at parameters
	}
	var room [8]clause
	chosen := Output{}
	for _, c := range preferred(room[:0], header) {
		var ok bool
		if chosen, ok = c.serve(offer); ok {
			break
		}
	}
	switch {
	case chosen.Media == "":
		return Output{}, &NotAcceptable{Message: onlyText + objectTypes}
	case (offer == Streams || offer == TreeStreams) && chosen.Media == YAML:
		return Output{}, &NotAcceptable{Message: onlyText + streamTypes}
	}
	return chosen, nil
}

// known tells whether a clause names a type that there is. Parameters do not count,
// nor do wildcards of a half.
func known(header string, onlyJSON bool) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		switch MediaType(strings.Trim(name, " ")) {
		case "*/*", JSON:
			return true
		case YAML, Protobuf:
			if !onlyJSON {
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

// asked are the parameters of a clause that count.
type asked struct {
	as, group, version string
	stream, server     string
	pretty             bool
}

func (c *clause) asks() asked {
	var a asked
	for key, value := range c.parameters() {
		switch key {
		case "as":
			a.as = value
		case "g":
			a.group = value
		case "v":
			a.version = value
		case "stream":
			a.stream = value
		case "sv":
			a.server = value
		case "pretty":
			a.pretty = value == "1"
		}
	}
	return a
}

// serve returns what the clause asks for, when it can be had.
func (c *clause) serve(offer Offer) (Output, bool) {
	anything := c.major == "*" && c.minor == "*"
	if !anything && c.major != "application" {
		return Output{}, false
	}
	can, a := &offers[offer], c.asks()
	out := Output{Pretty: a.pretty}
	if a.as != "" || a.group != "" || a.version != "" {
		form, ok := forms[a.as]
		out.Form, out.Beta = form, a.version == "v1beta1"
		if !ok || !can.forms || a.group != "meta.k8s.io" || a.version != "v1" && !out.Beta {
			return Output{}, false
		}
	}
	if a.server != "" && a.server != can.server {
		return Output{}, false
	}
	for i := range media {
		m := &media[i]
		switch {
		case !anything && c.minor != "*" && c.minor != m.minor:
		case a.stream != "" && (a.stream != "watch" || !m.stream):
		case out.Form == Table && !(can.tables && m.tables):
		case out.Form == Whole && can.trees && m.media == Protobuf:
		default:
			out.Media = m.media
			return out, true
		}
	}
	return Output{}, false
}

// AcceptsAggregated tells whether the client of /api or /apis prefers the
// aggregated document to the plain one.
func AcceptsAggregated(header string) bool {
	if !strings.Contains(header, "APIGroupDiscoveryList") {
		return false
	}
	var room [8]clause
	for _, c := range preferred(room[:0], header) {
		a := c.asks()
		if _, plain := c.serve(Documents); plain {
			return false
		}
		wanted := a.as == "APIGroupDiscoveryList" && a.group == "apidiscovery.k8s.io" && a.version == "v2"
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
