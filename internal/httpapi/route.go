package httpapi

import (
	"net/http"
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

// requestVerb is what a request on a resource wants, for whoever decides whether
// it may: row A2. It does not tell whether there is such a verb.
func requestVerb(method string, p *place, query string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		switch {
		case p.watch:
			return verbWatch
		case p.name != "":
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
		if p.name == "" {
			return verbDeleteCollection
		}
		return verbDelete
	}
	return strings.ToLower(method)
}

// wantsWatch reads the watch parameter: any value but 0 and false asks for one.
func wantsWatch(query string) bool {
	value, ok := lookup(query, "watch")
	return ok && value != "0" && !strings.EqualFold(value, "false")
}

// lookup finds the first value of a parameter whose name needs no escapes,
// without parsing the rest. The value is as it was sent.
func lookup(query, name string) (string, bool) {
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		if key, value, _ := strings.Cut(part, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// routeError tells why there is no verb for a request.
type routeError uint8

const (
	routed routeError = iota
	noRoute
	noMethod
)

// allow decides whether a path of a type takes a method: 404 when nothing is
// served at the path, 405 when something is, but not by this method.
func allow(t *resource.Type, p *place, method string) routeError {
	if p.malformed || p.inNamespace && !t.Namespaced {
		return noRoute
	}
	elsewhere := t.Namespaced && (!p.inNamespace || p.namespaceOfAll)
	switch {
	case p.watch:
		if !t.Allows(verbWatch) || p.sub != "" || elsewhere && p.name != "" {
			return noRoute
		}
		return pick(method == http.MethodGet)
	case p.sub != "":
		s := t.Subresource(p.sub)
		if s == nil || elsewhere || p.rest != "" && p.sub != "proxy" {
			return noRoute
		}
		return pick(p.sub == "proxy" || subresourceAllows(s, method))
	case p.name != "":
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

// objectVerb is the verb of a method on one object; empty: there is none.
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

// collectionVerb is the verb of a method on a collection; empty: there is none.
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
