package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// The verbs, as RBAC and discovery name them.
const (
	verbGet              = "get"
	verbList             = "list"
	verbWatch            = "watch"
	verbCreate           = "create"
	verbUpdate           = "update"
	verbPatch            = "patch"
	verbDelete           = "delete"
	verbDeleteCollection = "deletecollection"
)

// requestVerb returns the verb of a request on a resource, as RBAC names it; empty for other
// methods. The resource need not support it.
func requestVerb(method string, p *requestInfo, query string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case p.watch:
			return verbWatch
		case !p.collection:
			return verbGet
		case wantsWatch(query):
			return verbWatch
		}
		return verbList
	case http.MethodPost:
		return verbCreate
	case http.MethodPut:
		return verbUpdate
	case http.MethodPatch:
		return verbPatch
	case http.MethodDelete:
		if p.collection {
			return verbDeleteCollection
		}
		return verbDelete
	}
	return "" // as in kube-apiserver: no rule but one for all verbs allows it
}

// wantsWatch reads the watch parameter: any value but 0 and false asks for one.
func wantsWatch(query string) bool {
	value, ok := lookup(query, "watch")
	return ok && value != "0" && !strings.EqualFold(value, "false")
}

// lookup returns the first value of a parameter, as url.ParseQuery does, without parsing the
// rest of the query. The verb of a request depends on it: a client must not be able to hide a
// parameter by escapes.
func lookup(query, name string) (string, bool) {
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(part, "=")
		if len(key) < len(name) || strings.Contains(part, ";") {
			continue
		}
		if key, ok := unescape(key); !ok || key != name {
			continue
		}
		if value, ok := unescape(value); ok {
			return value, true
		}
	}
	return "", false
}

// unescape returns a part of a query without its escapes. It reports false for invalid ones.
func unescape(s string) (string, bool) {
	if !strings.ContainsAny(s, "%+") {
		return s, true
	}
	plain, err := url.QueryUnescape(s)
	return plain, err == nil
}

// routeError is the reason why no verb serves a request.
type routeError uint8

const (
	routed routeError = iota
	noRoute
	noMethod
)

// allow reports whether a type serves a path by a method: noRoute (404) if it serves nothing
// at the path, noMethod (405) if it serves the path by other methods only.
func allow(t *resource.Type, p *requestInfo, method string) routeError {
	if p.malformed || p.inNamespace && !t.Namespaced {
		return noRoute
	}
	elsewhere := t.Namespaced && (!p.inNamespace || p.emptyScope)
	switch {
	case p.watch:
		if !t.Allows(verbWatch) || p.Subresource != "" || elsewhere && !p.collection {
			return noRoute
		}
		return pick(method == http.MethodGet)
	case p.Subresource != "":
		s := t.Subresource(p.Subresource)
		if s == nil || elsewhere || p.rest != "" && p.Subresource != "proxy" {
			return noRoute
		}
		return pick(p.Subresource == "proxy" || subresourceAllows(s, method))
	case !p.collection:
		if elsewhere || !allowsAny(t, verbGet, verbUpdate, verbPatch, verbDelete) {
			return noRoute
		}
		return pick(t.Allows(objectVerb(method)))
	case elsewhere:
		if !t.Allows(verbList) {
			return noRoute
		}
		return pick(method == http.MethodGet)
	}
	if !allowsAny(t, verbList, verbCreate, verbDeleteCollection) {
		return noRoute
	}
	return pick(t.Allows(collectionVerb(method)))
}

func pick(ok bool) routeError {
	if ok {
		return routed
	}
	return noMethod
}

func allowsAny(t *resource.Type, verbs ...string) bool {
	for _, v := range verbs {
		if t.Allows(v) {
			return true
		}
	}
	return false
}

// objectVerb returns the verb of a method on one object, or "".
func objectVerb(method string) string {
	switch method {
	case http.MethodGet:
		return verbGet
	case http.MethodPut:
		return verbUpdate
	case http.MethodPatch:
		return verbPatch
	case http.MethodDelete:
		return verbDelete
	}
	return ""
}

// collectionVerb returns the verb of a method on a collection, or "".
func collectionVerb(method string) string {
	switch method {
	case http.MethodGet:
		return verbList
	case http.MethodPost:
		return verbCreate
	case http.MethodDelete:
		return verbDeleteCollection
	}
	return ""
}

func subresourceAllows(s *resource.Subresource, method string) bool {
	want := objectVerb(method)
	if method == http.MethodPost {
		want = verbCreate
	}
	for _, v := range s.Verbs {
		if v == want {
			return true
		}
	}
	return false
}

// lowerMethod is the verb of a request outside the API.
func lowerMethod(method string) string {
	if method == http.MethodGet {
		return verbGet
	}
	return strings.ToLower(method)
}
