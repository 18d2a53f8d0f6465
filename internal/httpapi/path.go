package httpapi

import "strings"

// place is what a path says: row A1. Its strings are parts of the path.
type place struct {
	// resource is empty for a path that names none: a discovery document, or no API
	// path at all; then kind tells which.
	kind                           placeKind
	group, version                 string
	namespace, resource, name, sub string
	rest                           string // below a subresource
	watch                          bool   // the deprecated prefix
	inNamespace                    bool   // the path has a namespace segment
	malformed                      bool   // an API path that no route matches
	namespaceOfAll                 bool   // the namespace segment is empty
}

type placeKind uint8

const (
	otherPath    placeKind = iota // not an API path
	rootAPI                       // /api
	rootAPIs                      // /apis
	groupPath                     // /apis/G
	versionPath                   // /api/V, /apis/G/V
	resourcePath                  // below a version
)

// parsePath reads a path. It allocates nothing, and accepts any string.
func parsePath(path string) place {
	var p place
	rest, core := strings.CutPrefix(path, "/api")
	if apis, ok := strings.CutPrefix(path, "/apis"); ok && (apis == "" || apis[0] == '/') {
		return p.inGroups(apis)
	}
	if !core || rest != "" && rest[0] != '/' {
		return p
	}
	if rest == "" || rest == "/" {
		p.kind = rootAPI
		return p
	}
	return p.inVersion(rest[1:])
}

// inGroups reads what follows /apis.
func (p place) inGroups(rest string) place {
	if rest == "" || rest == "/" {
		p.kind = rootAPIs
		return p
	}
	group, below, more := strings.Cut(rest[1:], "/")
	if group == "" {
		return place{}
	}
	p.group = group
	if !more || below == "" {
		p.kind = groupPath
		return p
	}
	return p.inVersion(below)
}

// inVersion reads a path that begins with a version.
func (p place) inVersion(rest string) place {
	version, below, more := strings.Cut(rest, "/")
	p.version = version
	if !more || below == "" {
		p.kind = versionPath
		return p
	}
	p.kind = resourcePath
	below = strings.TrimSuffix(below, "/")
	if prefixed, ok := strings.CutPrefix(below, "watch/"); ok {
		p.watch = true
		below = prefixed
	}
	in, ok := strings.CutPrefix(below, "namespaces/")
	if !ok {
		return p.inScope(below)
	}
	// namespaces/NS, namespaces/NS/SUB, or something in the namespace NS.
	namespace, inside, more := strings.Cut(in, "/")
	switch {
	case !more, inside == "status", inside == "finalize":
		p.resource, p.name, p.sub = "namespaces", namespace, inside
		p.namespace = namespace
		p.malformed = namespace == ""
		return p
	}
	p.inNamespace, p.namespace, p.namespaceOfAll = true, namespace, namespace == ""
	return p.inScope(inside)
}

// inScope reads RESOURCE[/NAME[/SUB[/REST]]].
func (p place) inScope(below string) place {
	var more bool
	p.resource, below, more = strings.Cut(below, "/")
	if more {
		p.name, below, more = strings.Cut(below, "/")
		p.malformed = p.name == ""
	}
	if more {
		p.sub, p.rest, more = strings.Cut(below, "/")
		p.malformed = p.malformed || p.sub == "" || more && p.sub != "proxy"
	}
	p.malformed = p.malformed || p.resource == ""
	return p
}

// nameFault says what is wrong with a name as a path segment, with the words of
// kube-apiserver; empty: nothing.
func nameFault(name string) string {
	switch {
	case name == ".":
		return "may not be '.'"
	case name == "..":
		return "may not be '..'"
	case strings.Contains(name, "/"):
		return "may not contain '/'"
	case strings.Contains(name, "%"):
		return "may not contain '%'"
	}
	return ""
}
