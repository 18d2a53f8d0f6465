package wire

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Output is the representation of a response. The zero value is none.
type Output struct {
	Media MediaType
	// Pretty asks for indented JSON, by a parameter of the media type. Other ways to ask
	// for it are known to the caller.
	Pretty bool
	// Form is the requested form.
	Form Form
	// Beta: the form has the version meta.k8s.io/v1beta1, not v1.
	Beta bool
	// Unmanaged: objects have no metadata.managedFields.
	Unmanaged bool
}

// Binary returns the encoding of a binary media type; nil for text.
func (o Output) Binary() *Binary {
	for i := range media {
		if media[i].media == o.Media {
			return media[i].binary
		}
	}
	return nil
}

// Form is the part of an object or a list that a client asks for.
type Form uint8

// The forms.
const (
	// Whole is the object or the list itself.
	Whole Form = iota
	// Partial is a PartialObjectMetadata.
	Partial
	// PartialList is a PartialObjectMetadataList.
	PartialList
	// Table is a table for people.
	Table
)

// forms are the kinds of meta.k8s.io that a parameter of Accept names.
var forms = map[string]Form{
	"PartialObjectMetadata":     Partial,
	"PartialObjectMetadataList": PartialList,
	"Table":                     Table,
}

// Offer is a class of endpoints, by the representations that they have.
type Offer uint8

// The classes differ in the offered media types, and in the text of a rejection.
const (
	// Objects are responses with one object.
	Objects Offer = iota
	// Lists are responses with a list.
	Lists
	// Streams are watches.
	Streams
	// Trees are objects, lists and watches of custom resources, which have no protobuf.
	// Their metadata has all representations.
	Trees
	// TreeStreams are watches of custom resources.
	TreeStreams
	// Responses are objects that are never stored: they have no tables.
	Responses
	// Discovery are the documents about groups.
	Discovery
	// Resources are the discovery documents about one version of a group.
	Resources
	// OnlyJSON has no other representation.
	OnlyJSON
	// Documents are objects of endpoints that check parameters first, and errors of
	// requests whose resource is not known yet.
	Documents
	// Errors are those of a resource.
	Errors
)

const (
	unknownText = "406: Not Acceptable\n\nAvailable representations: "
	onlyText    = "only the following media types are accepted: "
)

// offers describe the classes.
var offers = [...]struct {
	// literal: one clause has to name one of the types literally; otherwise that is not
	// checked.
	literal bool
	// streams: a clause may also name the type of a watch.
	streams bool
	// forms other than Whole, and among them tables.
	forms, tables bool
	// server is the version of the API that a parameter may ask for.
	server string
	// resources: the media types that only resources have.
	resources bool
	// json: there is no other media type.
	json bool
	// trees: whole objects have no protobuf.
	trees bool
}{
	Objects:     {literal: true, forms: true, tables: true, server: "v1", resources: true},
	Lists:       {literal: true, streams: true, forms: true, tables: true, server: "v1", resources: true},
	Streams:     {literal: true, streams: true, forms: true, tables: true, server: "v1", resources: true},
	Trees:       {forms: true, tables: true, server: "v1", resources: true, trees: true},
	TreeStreams: {forms: true, tables: true, server: "v1", resources: true, trees: true},
	Responses:   {literal: true, forms: true, server: "v1", resources: true},
	Discovery:   {literal: true},
	Resources:   {literal: true, resources: true},
	OnlyJSON:    {literal: true, json: true},
	Documents:   {},
	Errors:      {resources: true},
}

// serialization is a row of the table of media types.
type serialization struct {
	media  MediaType
	minor  string // after application/
	stream string // media type of a watch; empty: there is none
	tables bool   // there are tables in it
	// apply is the type of a patch that is an applied configuration in this media type;
	// empty: there is none.
	apply types.PatchType
	// gated: only resources have it, and only where the server enables it.
	gated bool
	// binary is its encoding; nil for text.
	binary *Binary
}

// media are the serializations, in the order in which a wildcard tries them.
var media = [...]serialization{
	{media: JSON, minor: "json", stream: string(JSON) + ";stream=watch", tables: true},
	{media: YAML, minor: "yaml", tables: true, apply: types.ApplyYAMLPatchType},
	{media: Protobuf, minor: "vnd.kubernetes.protobuf", stream: string(Protobuf) + ";stream=watch", binary: &protobufForm},
	{media: CBOR, minor: "cbor", stream: "application/cbor-seq", apply: types.ApplyCBORPatchType, gated: true, binary: &cborForm},
}

// Served are the media types of a server. The zero value has those that every server has.
type Served struct {
	// CBOR: resources also have CBOR.
	CBOR bool
	// Unmanaged: clients can leave out metadata.managedFields.
	Unmanaged bool
}

// has reports whether an endpoint has a media type.
func (s Served) has(m *serialization, offer Offer) bool {
	can := &offers[offer]
	return (!can.json || m.media == JSON) && (!m.gated || s.CBOR && can.resources)
}

// names lists the media types of an endpoint for people: those of objects, of watches, or
// both.
func (s Served) names(offer Offer, objects, streams bool) string {
	var all []string
	for i := range media {
		if objects && s.has(&media[i], offer) {
			all = append(all, string(media[i].media))
		}
	}
	for i := range media {
		if streams && media[i].stream != "" && s.has(&media[i], offer) {
			all = append(all, media[i].stream)
		}
	}
	return strings.Join(all, ", ")
}

// Input returns the media type of a body by its content type without parameters. An empty
// content type is JSON. It returns false for an unsupported one.
func (s Served) Input(contentType string) (MediaType, bool) {
	if contentType == "" {
		return JSON, true
	}
	for i := range media {
		if m := &media[i]; string(m.media) == contentType && s.has(m, Objects) {
			return m.media, true
		}
	}
	return "", false
}

// InputTypes lists the types that Input supports, for people.
func (s Served) InputTypes() string { return s.names(Objects, true, false) }

// ConfigurationTypes lists the types of applied configurations, for people.
func (s Served) ConfigurationTypes() string {
	var all []string
	for i := range media {
		if m := &media[i]; m.apply != "" && s.has(m, Objects) {
			all = append(all, string(m.apply))
		}
	}
	return strings.Join(all, ", ")
}

// Patch returns the type of a patch by its content type without parameters. It returns
// false for an unsupported one.
func (s Served) Patch(contentType string) (types.PatchType, bool) {
	switch p := types.PatchType(contentType); p {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
		return p, true
	default:
		medium := s.applied(p)
		return p, medium != ""
	}
}

// applied returns the media type of an applied configuration, empty for another patch.
func (s Served) applied(p types.PatchType) MediaType {
	for i := range media {
		if m := &media[i]; m.apply == p && p != "" && s.has(m, Objects) {
			return m.media
		}
	}
	return ""
}

// AppliedMedium returns the media type of a patch that is an applied configuration, empty
// for another patch.
func AppliedMedium(p types.PatchType) MediaType { return Served{CBOR: true}.applied(p) }

// NotAcceptable is the error for an Accept header without a clause that can be served.
type NotAcceptable struct {
	// Message is the text for the client.
	Message string
	// Unknown: no clause names a media type of the endpoint at all.
	Unknown bool
}

// Error implements error.
func (e *NotAcceptable) Error() string { return e.Message }

// Negotiate selects a representation by an Accept header, as kube-apiserver does. One
// clause has to name a known type literally, or be */*. Then the clauses are tried in the
// order of preference. A clause for a representation that is not served (a table, protobuf)
// is skipped. An error is a *NotAcceptable.
func (s Served) Negotiate(header string, offer Offer) (Output, error) {
	switch header {
	case "", "application/json", "*/*":
		return Output{Media: JSON}, nil
	}
	can := &offers[offer]
	if can.literal && !s.known(header, offer) {
		return Output{}, &NotAcceptable{Message: unknownText + s.names(offer, true, can.streams), Unknown: true}
	}
	if can.json {
		return Output{Media: JSON}, nil // parameters are ignored
	}
	var room [8]clause
	chosen := Output{}
	for _, c := range preferred(room[:0], header) {
		var ok bool
		if chosen, ok = c.serve(s, offer); ok {
			break
		}
	}
	switch {
	case chosen.Media == "":
		return Output{}, &NotAcceptable{Message: onlyText + s.names(offer, true, false)}
	case (offer == Streams || offer == TreeStreams) && chosen.Media == YAML:
		return Output{}, &NotAcceptable{Message: onlyText + s.names(offer, false, true)}
	}
	return chosen, nil
}

// known reports whether a clause names a supported type. Parameters do not matter, and a
// partial wildcard does not count.
func (s Served) known(header string, offer Offer) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		name = strings.Trim(name, " ")
		switch name {
		case "": // as the streams of some media are called
			continue
		case "*/*":
			return true
		}
		for i := range media {
			m := &media[i]
			if s.has(m, offer) && (name == string(m.media) || offers[offer].streams && name == m.stream) {
				return true
			}
		}
	}
	return false
}

// clause is a part of an Accept header between commas.
type clause struct {
	major, minor string
	params       string // the text after the first semicolon
	q            float64
}

// maxClauses is how many clauses of a header count, since sorting them takes quadratic
// time. Clients send up to a dozen.
const maxClauses = 64

// preferred appends the well-formed clauses in the order of preference.
func preferred(to []clause, header string) []clause {
	for part := range strings.SplitSeq(header, ",") {
		if len(to) == maxClauses {
			break
		}
		c, ok := parseClause(part)
		if !ok {
			continue
		}
		// Insertion keeps the order of equal clauses. As in kube-apiserver, a type precedes
		// a wildcard whatever its weight.
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

// before reports whether the clause is preferred over the other one.
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

// asked are the parameters of a clause that matter.
type asked struct {
	as, group, version string
	stream, server     string
	drop               string
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
		case "drop":
			a.drop = value
		case "pretty":
			a.pretty = value == "1"
		}
	}
	return a
}

// serve returns the representation that the clause asks for; false when it is not served.
func (c *clause) serve(s Served, offer Offer) (Output, bool) {
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
	if s.Unmanaged && a.drop != "" {
		if a.drop != "metadata.managedFields" {
			return Output{}, false
		}
		out.Unmanaged = true
	}
	m := c.match(s, offer, func(m *serialization) bool {
		switch {
		case !m.streams(a.stream):
		case out.Form == Table && !(can.tables && m.tables):
		case out.Form == Whole && can.trees && m.media == Protobuf:
		default:
			return true
		}
		return false
	})
	if m == nil {
		return Output{}, false
	}
	out.Media = m.media
	return out, true
}

// match returns the first serialization of an endpoint that the clause names and that fits; nil if
// there is none.
func (c *clause) match(s Served, offer Offer, fits func(*serialization) bool) *serialization {
	anything := c.major == "*" && c.minor == "*"
	if !anything && c.major != "application" {
		return nil
	}
	for i := range media {
		m := &media[i]
		if (anything || c.minor == "*" || c.minor == m.minor) && s.has(m, offer) && fits(m) {
			return m
		}
	}
	return nil
}

// streams reports whether the serialization has the schema of streams that a clause names.
func (m *serialization) streams(schema string) bool {
	return schema == "" || schema == "watch" && m.stream != ""
}

// Aggregated selects the representation of the aggregated document of /api or /apis. It returns false
// if no clause of the Accept header names that document. As in kube-apiserver, a clause that does
// wins over all others.
func Aggregated(header string, offer Offer) (Output, bool) {
	if !strings.Contains(header, "APIGroupDiscoveryList") || offers[offer].literal && !(Served{}).known(header, offer) {
		return Output{}, false
	}
	var room [8]clause
	for _, c := range preferred(room[:0], header) {
		a := c.asks()
		if a.as != "APIGroupDiscoveryList" || a.group != "apidiscovery.k8s.io" || a.version != "v2" || a.server != "" {
			continue
		}
		if m := c.match(Served{}, offer, func(m *serialization) bool { return m.streams(a.stream) }); m != nil {
			return Output{Media: m.media, Pretty: a.pretty}, true
		}
	}
	return Output{}, false
}

// AggregatedType is the content type of an aggregated document.
func AggregatedType(m MediaType) string {
	return string(m) + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
}

// NegotiateStatusz selects the representation of /statusz: text if the media type is empty, otherwise a
// Statusz of the version, in JSON or YAML. An error is a *NotAcceptable.
func NegotiateStatusz(header string) (out Output, version string, err error) {
	if strings.TrimSpace(header) == "" {
		return Output{}, "v1beta1", nil
	}
	var room [8]clause
	for _, c := range preferred(room[:0], header) {
		a := c.asks()
		text := c.major == "text" && (c.minor == "plain" || c.minor == "*") || c.major == "*" && c.minor == "*"
		switch {
		case a.stream != "" || a.server != "":
		case text && a.as == "" && a.group == "" && a.version == "":
			return Output{}, "v1beta1", nil
		case a.as != "Statusz" || a.group != "config.k8s.io" || a.version != "v1beta1" && a.version != "v1alpha1":
		default:
			if m := c.match(Served{}, Documents, func(m *serialization) bool { return m.binary == nil }); m != nil {
				return Output{Media: m.media, Pretty: a.pretty}, a.version, nil
			}
		}
	}
	return Output{}, "", &NotAcceptable{Message: onlyText + "application/json, application/yaml, text/plain"}
}

// StatuszType is the content type of a Statusz.
func StatuszType(m MediaType, version string) string {
	return string(m) + ";g=config.k8s.io;v=" + version + ";as=Statusz"
}

// AcceptsGzip reports whether an Accept-Encoding header allows gzip.
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
