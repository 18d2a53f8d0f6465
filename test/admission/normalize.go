package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

var (
	timeText    = regexp.MustCompile(`20(2[5-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	uuidText    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	versionText = regexp.MustCompile(`^[1-9]\d*$`)
	// A connection that breaks names the port of the client.
	portText = regexp.MustCompile(`127\.0\.0\.1:\d+->`)
)

// shownHeaders are part of each recording, if the server sends them.
var shownHeaders = []string{"Content-Type", "Warning", "Retry-After", "Location"}

// normalizer replaces the parts that differ from run to run by names: {ns}, {id}, {hook}, <uid1>,
// <time>, <rv>, <gen1>.
type normalizer struct {
	names [][2]string // in the order of their replacement
	uids  []string
}

func newNormalizer(vars map[string]string) *normalizer {
	n := &normalizer{}
	for name, value := range vars {
		if name == "id" || name == "server" || strings.HasPrefix(name, "ns") || strings.HasPrefix(name, "hook") {
			n.names = append(n.names, [2]string{value, "{" + name + "}"})
		}
	}
	slices.SortFunc(n.names, func(a, b [2]string) int {
		return cmp.Or(len(b[0])-len(a[0]), strings.Compare(a[0], b[0]))
	})
	return n
}

// learn finds the generated names in a document.
func (n *normalizer) learn(v any) {
	switch node := v.(type) {
	case []any:
		for _, child := range node {
			n.learn(child)
		}
	case map[string]any:
		name, _ := node["name"].(string)
		prefix, _ := node["generateName"].(string)
		if rest, ok := strings.CutPrefix(name, prefix); ok && prefix != "" && len(rest) == 5 {
			if !slices.ContainsFunc(n.names, func(known [2]string) bool { return known[0] == name }) {
				n.names = slices.Insert(n.names, 0, [2]string{name, prefix + "<gen>"})
			}
		}
		for _, key := range slices.Sorted(maps.Keys(node)) {
			n.learn(node[key])
		}
	}
}

// document writes a document without the parts that differ.
func (n *normalizer) document(v any, st *step) string {
	v = n.value(v, st.managed)
	for _, path := range st.drop {
		var err error
		if v, _, err = visit(v, path, func(any) (any, bool) { return nil, false }); err != nil {
			return err.Error() + "\n"
		}
	}
	if len(st.only) == 0 {
		return pretty(v)
	}
	out := map[string]any{}
	for _, path := range st.only {
		values, err := find(v, path)
		switch {
		case err != nil:
			return err.Error() + "\n"
		case len(values) == 1:
			out[path] = values[0]
		case len(values) > 1:
			out[path] = values
		}
	}
	return pretty(out)
}

// value returns a copy with normalized texts.
func (n *normalizer) value(v any, managed bool) any {
	switch node := v.(type) {
	case []any:
		out := make([]any, len(node))
		for i := range node {
			out[i] = n.value(node[i], managed)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for key, child := range node {
			s, isText := child.(string)
			switch {
			case key == "managedFields" && !managed:
			case key == "resourceVersion" && isText && versionText.MatchString(s):
				out[key] = "<rv>"
			default:
				out[n.text(key)] = n.value(child, managed)
			}
		}
		return out
	case string:
		return n.text(node)
	}
	return v
}

func (n *normalizer) text(s string) string {
	for _, pair := range n.names {
		s = strings.ReplaceAll(s, pair[0], pair[1])
	}
	return portText.ReplaceAllString(timeText.ReplaceAllString(s, "<time>"), "127.0.0.1:<port>->")
}

// rank replaces uids by their order.
func (n *normalizer) rank(s string) string {
	return uuidText.ReplaceAllStringFunc(s, func(uid string) string {
		i := slices.Index(n.uids, uid)
		if i < 0 {
			i = len(n.uids)
			n.uids = append(n.uids, uid)
		}
		return fmt.Sprintf("<uid%d>", i+1)
	})
}

// response writes a response of the server.
func (n *normalizer) hookResponse(st *step, status int, header http.Header, body []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", status)
	if !st.statusOnly {
		for _, key := range slices.Concat(shownHeaders, st.headers) {
			for _, value := range header.Values(key) {
				fmt.Fprintf(&b, "%s: %s\n", key, n.text(value))
			}
		}
		if doc := decode(body); doc != nil {
			n.learn(doc)
			b.WriteString("\n" + n.document(doc, st))
		} else if len(body) > 0 {
			b.WriteString("\n" + strings.TrimRight(n.text(string(body)), "\n") + "\n")
		}
	}
	return n.rank(b.String())
}

// received writes the calls of webhooks. Those whose names begin with "mutate" are called one after
// another, the others at the same time: they are sorted.
func (n *normalizer) received(st *step, calls []call) string {
	if st.calls == noCalls {
		return ""
	}
	plain := &step{managed: st.managed}
	var all []string
	for _, c := range calls {
		n.learn(c.body)
		s := "POST " + n.text(c.path) + "\n"
		if st.calls != callPaths {
			s += fmt.Sprintf("Content-Type: %s\nAccept: %s\n\n%s", c.header.Get("Content-Type"), c.header.Get("Accept"), n.document(c.body, plain))
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b string) int {
		if mutates := strings.HasPrefix(a, "POST /mutate"); mutates == strings.HasPrefix(b, "POST /mutate") {
			if mutates {
				return 0
			}
			return strings.Compare(uuidText.ReplaceAllString(a, ""), uuidText.ReplaceAllString(b, ""))
		} else if mutates {
			return -1
		}
		return 1
	})
	between := "\n"
	if st.calls == callPaths {
		between = ""
	}
	return n.rank(strings.Join(all, between))
}

// annotations writes the annotations of an audit event that admission may have added.
func (n *normalizer) annotations(event map[string]any) string {
	all, _ := event["annotations"].(map[string]any)
	maps.DeleteFunc(all, func(key string, _ any) bool {
		return strings.HasPrefix(key, "authorization.k8s.io/") || strings.HasPrefix(key, "apiserver.latency.k8s.io/")
	})
	if all == nil {
		all = map[string]any{}
	}
	return n.rank(pretty(n.value(all, false)))
}
