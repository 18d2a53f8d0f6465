package httpapi

import (
	"net/http"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

// requestInfo is the parsed path of a request. Authorization, seats, metrics and the verbs share
// it. Its strings are parts of the path, but for the verb.
type requestInfo struct {
	// Attributes are the input of authorization. The fields of a resource are empty for the path of
	// another document. User is set by authentication. Name is the object's, or the one that a
	// field selector selects of a collection.
	authz.Attributes
	// sender is the user that sent the request and impersonates User; nil: User sent it.
	sender *authn.User
	// constraint is the verb that allowed the impersonation: "impersonate:user-info". Empty: the
	// verb was impersonate.
	constraint  string
	kind        pathKind
	rest        string // below a subresource
	collection  bool   // the path names no object
	watch       bool   // the path has the deprecated prefix watch/
	inNamespace bool   // the path has a namespace segment
	emptyScope  bool   // the namespace segment is empty: all namespaces
	malformed   bool   // an API path that no route matches
}

type pathKind uint8

const (
	otherPath    pathKind = iota // not an API path
	rootAPI                      // /api
	rootAPIs                     // /apis
	groupPath                    // /apis/G
	versionPath                  // /api/V, /apis/G/V
	resourcePath                 // below a version
)

// newRequestInfo parses the path of a request.
func newRequestInfo(r *http.Request) requestInfo {
	i := parsePath(r.URL.Path)
	i.Path = r.URL.Path
	if i.kind != resourcePath {
		i.Verb = lowerMethod(r.Method)
		return i
	}
	i.IsResource = true
	i.collection = i.Name == ""
	i.Verb = requestVerb(r.Method, &i, r.URL.RawQuery)
	return i
}

// parsePath reads a path. It allocates nothing, and accepts any string.
func parsePath(path string) requestInfo {
	var p requestInfo
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

// inGroups parses the path after /apis.
func (p requestInfo) inGroups(rest string) requestInfo {
	if rest == "" || rest == "/" {
		p.kind = rootAPIs
		return p
	}
	group, below, more := strings.Cut(rest[1:], "/")
	if group == "" {
		return requestInfo{}
	}
	p.Group = group
	if !more || below == "" {
		p.kind = groupPath
		return p
	}
	return p.inVersion(below)
}

// inVersion reads a path that begins with a version.
func (p requestInfo) inVersion(rest string) requestInfo {
	version, below, more := strings.Cut(rest, "/")
	p.Version = version
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
		p.Resource, p.Name, p.Subresource = "namespaces", namespace, inside
		p.Namespace = namespace
		p.malformed = namespace == ""
		return p
	}
	p.inNamespace, p.Namespace, p.emptyScope = true, namespace, namespace == ""
	return p.inScope(inside)
}

// inScope reads RESOURCE[/NAME[/SUB[/REST]]].
func (p requestInfo) inScope(below string) requestInfo {
	var more bool
	p.Resource, below, more = strings.Cut(below, "/")
	if more {
		p.Name, below, more = strings.Cut(below, "/")
		p.malformed = p.Name == ""
	}
	if more {
		p.Subresource, p.rest, more = strings.Cut(below, "/")
		p.malformed = p.malformed || p.Subresource == "" || more && p.Subresource != "proxy"
	}
	p.malformed = p.malformed || p.Resource == ""
	return p
}

// nameFault returns why a name cannot be a path segment, in kube-apiserver's words, or "".
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
