package tidemarktest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// endObject is the final state of an object that changes touched.
type endObject struct {
	id     string // "configmaps default/settings", with stable names
	text   string // the object as YAML without what differs from run to run; "(deleted)"
	former string // the text before the changes; empty: there was no object, or it is not known
}

// touched is an object from its first change to its last.
type touched struct {
	collection, key string
	before, after   json.RawMessage
	byClient        bool     // a client, not the server itself, has changed it
	object, former  identity // of after and before
	stableName      string   // of a generated name
}

func (o *touched) id() [2]string { return [2]string{o.collection, o.key} }

// ends returns what changes made of the objects that they touched, in the order of their IDs. It
// leaves out objects that ended as they began, and what says more about a run than about its result:
// Events, Leases, the objects that the server puts into each namespace, and the IPAddresses of Services.
// Calls for similar runs share their renderings; nil: they are not kept.
func ends(changes []Change, kept *renderings) ([]endObject, error) {
	return endsOf(touchedBy(changes), kept)
}

// endsOf is ends for objects that changes touched.
func endsOf(all []*touched, kept *renderings) ([]endObject, error) {
	if err := nameGenerated(all, kept); err != nil {
		return nil, err
	}
	replace := replacer(all, true)
	var list []endObject
	for _, o := range all {
		text, err := o.render(o.after, replace, kept)
		if err != nil {
			return nil, err
		}
		former, err := o.render(o.before, replace, kept)
		if err != nil {
			return nil, err
		}
		if text == former {
			continue
		}
		if text == "" {
			text = "(deleted)\n"
		}
		list = append(list, endObject{o.collection + " " + replace(o.key), text, former})
	}
	slices.SortStableFunc(list, compareID)
	return list, nil
}

// endBeside returns the ends of a run for a comparison with another run that had the same beginning. A UID of an object
// that only the other run has touched is one of an object in both.
func (r *Run) endBeside(other *Run) ([]endObject, error) {
	mine := map[[2]string]bool{}
	for _, o := range r.touched {
		mine[o.id()] = true
	}
	var missing []*touched
	for _, o := range other.touched {
		if !mine[o.id()] && !isNone(o.before) {
			missing = append(missing, &touched{collection: o.collection, key: o.key, before: o.before, after: o.before, object: o.former, former: o.former})
		}
	}
	if len(missing) == 0 {
		return r.ends, nil
	}
	return endsOf(append(touchedBy(r.Changes), missing...), r.kept)
}

// addFormer adds the objects that a run did not change, but another run with the same beginning, as they were in the
// beginning.
func addFormer(ends, other []endObject) []endObject {
	all := slices.Clone(ends)
	for _, o := range other {
		if _, found := slices.BinarySearchFunc(ends, o, compareID); !found && o.former != "" {
			all = append(all, endObject{o.id, o.former, o.former})
		}
	}
	slices.SortStableFunc(all, compareID)
	return all
}

func compareID(a, b endObject) int { return cmp.Compare(a.id, b.id) }

// touchedBy joins the changes of each object, in the order of their first changes.
func touchedBy(changes []Change) []*touched {
	byID := map[[2]string]*touched{}
	var all []*touched
	for i := range changes {
		c := &changes[i]
		if transient(c.Collection) {
			continue
		}
		id := [2]string{c.Collection, c.Key}
		o := byID[id]
		if o == nil {
			o = &touched{collection: c.Collection, key: c.Key, before: c.Before}
			byID[id] = o
			all = append(all, o)
		}
		o.after = c.After
		o.byClient = o.byClient || c.Actor != nil && c.Actor.Loop == ""
	}
	all = slices.DeleteFunc(all, func(o *touched) bool {
		return o.ofAllocator() || !o.byClient && (o.collection == "configmaps" && strings.HasSuffix(o.key, "/kube-root-ca.crt") ||
			o.collection == "serviceaccounts" && strings.HasSuffix(o.key, "/default"))
	})
	for _, o := range all {
		o.object, o.former = identityOf(o.after), identityOf(o.before)
	}
	return all
}

// ofAllocator reports whether the object is the IPAddress of a Service.
func (o *touched) ofAllocator() bool { return ofAllocator(o.collection, o.before, o.after) }

// ofAllocator reports whether an object is the IPAddress of a Service. The server picks a random one, and creates it
// with the Service.
func ofAllocator(collection string, before, after json.RawMessage) bool {
	if isNone(after) {
		after = before
	}
	return collection == "ipaddresses.networking.k8s.io" && bytes.Contains(after, []byte(`"ipallocator.k8s.io"`))
}

// transient reports whether a collection is about the course of a run, not about its result.
func transient(collection string) bool {
	return slices.Contains([]string{"events", "events.events.k8s.io", "leases.coordination.k8s.io"}, collection)
}

// isNone reports whether a version of an object is absent.
func isNone(version json.RawMessage) bool { return len(version) == 0 || string(version) == "null" }

func decodeObject(text json.RawMessage) (map[string]any, error) {
	if isNone(text) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o map[string]any
	return o, d.Decode(&o)
}

// suffixLength is that of generated names.
const suffixLength = 5

// nameGenerated gives the objects with generated names stable ones, such as "web-(1)": the number in
// the order of their contents. Those with equal contents are numbered in the order of their creation,
// and can be exchanged.
func nameGenerated(all []*touched, kept *renderings) error {
	groups := map[string][]*touched{}
	for _, o := range all {
		id := o.object
		if isNone(o.after) {
			id = o.former
		}
		prefix, name := id.generateName, id.name
		if prefix == "" || len(name) != len(prefix)+suffixLength || !strings.HasPrefix(name, prefix) {
			continue
		}
		o.stableName = prefix + "(*)"
		group := o.collection + " " + strings.TrimSuffix(o.key, name) + prefix
		groups[group] = append(groups[group], o)
	}
	replace := replacer(all, false)
	for _, group := range groups {
		texts := map[*touched]string{}
		for _, o := range group {
			var err error
			if texts[o], err = o.render(o.after, replace, kept); err != nil {
				return err
			}
		}
		slices.SortStableFunc(group, func(a, b *touched) int { return cmp.Compare(texts[a], texts[b]) })
	}
	for _, group := range groups {
		for i, o := range group {
			o.stableName = strings.TrimSuffix(o.stableName, "(*)") + fmt.Sprintf("(%d)", i+1)
		}
	}
	return nil
}

// replacer returns a function that replaces generated names and UIDs of objects by stable ones. Without uids it
// makes all UIDs alike, so that they have no influence on an order.
func replacer(all []*touched, uids bool) func(string) string {
	var pairs [][2]string
	for _, o := range all {
		if o.stableName != "" {
			name := o.key[strings.LastIndexByte(o.key, '/')+1:]
			pairs = append(pairs, [2]string{name, o.stableName})
		}
	}
	byLength := func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(len(b[0]), len(a[0])), cmp.Compare(a[0], b[0]))
	}
	slices.SortFunc(pairs, byLength) // a name can begin with another one
	names := strings.NewReplacer(slices.Concat(toSlices(pairs)...)...)
	known, onlyUUIDs := map[string]string{}, len(pairs) == 0
	for _, o := range all {
		for _, id := range []identity{o.object, o.former} {
			if _, ok := known[id.uid]; ok || id.uid == "" || !uids {
				continue
			}
			known[id.uid] = "(uid of " + o.collection + " " + names.Replace(o.key) + ")"
			pairs = append(pairs, [2]string{id.uid, known[id.uid]})
			onlyUUIDs = onlyUUIDs && len(id.uid) == uuidLength && nextUUID(id.uid, 0) == 0
		}
	}
	if onlyUUIDs { // which need no search for each of them
		return func(s string) string { return replaceUUIDs(s, known) }
	}
	slices.SortStableFunc(pairs, byLength)
	return strings.NewReplacer(slices.Concat(toSlices(pairs)...)...).Replace
}

func toSlices(pairs [][2]string) [][]string {
	out := make([][]string, len(pairs))
	for i := range pairs {
		out[i] = pairs[i][:]
	}
	return out
}

// render returns a version of the object as YAML without the parts that differ from run to run;
// empty for an absent object.
func (o *touched) render(version json.RawMessage, replace func(string) string, kept *renderings) (string, error) {
	text, err := kept.render(version, replace)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", o.collection, o.key, err)
	}
	return text, nil
}

// stable returns a copy of an object without resource versions, UIDs, points in time and field
// managers. Sets are sorted.
func stable(object map[string]any, replace func(string) string) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	generation, _ := metadata["generation"].(json.Number)
	out := stableMap(object, generation, replace)
	if object["kind"] == "Service" && object["apiVersion"] == "v1" {
		hideAllocated(out)
	}
	if m, ok := out["metadata"].(map[string]any); ok {
		for _, name := range []string{"uid", "generation", "creationTimestamp", "managedFields", "selfLink"} {
			delete(m, name)
		}
		for _, name := range []string{"finalizers", "ownerReferences"} {
			sortValues(m[name])
		}
	}
	return out
}

// hideAllocated replaces the addresses and ports of a Service, which the server picks at random.
func hideAllocated(service map[string]any) {
	spec, _ := service["spec"].(map[string]any)
	if ip, _ := spec["clusterIP"].(string); ip != "" && ip != "None" {
		spec["clusterIP"] = "(address)"
		if list, ok := spec["clusterIPs"].([]any); ok {
			for i := range list {
				list[i] = "(address)"
			}
		}
	}
	if _, ok := spec["healthCheckNodePort"]; ok {
		spec["healthCheckNodePort"] = "(port)"
	}
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		if port, ok := p.(map[string]any); ok && port["nodePort"] != nil {
			port["nodePort"] = "(port)"
		}
	}
}

var uuid = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// uuidLength is that of a UUID as text.
const uuidLength = 36

// nextUUID returns where the next text with the form of a UUID begins, from an index on; negative: there is none.
func nextUUID(s string, from int) int {
	for {
		dash := -1
		if from+uuidLength <= len(s) {
			dash = strings.IndexByte(s[from+8:], '-')
		}
		if dash < 0 || from+dash+uuidLength > len(s) {
			return -1
		}
		if from += dash; isUUID(s[from : from+uuidLength]) {
			return from
		}
		from++
	}
}

func isUUID(s string) bool {
	for i := range uuidLength {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

// replaceUUIDs replaces the UUIDs that are known.
func replaceUUIDs(s string, known map[string]string) string {
	done, out := 0, ""
	for i := nextUUID(s, 0); i >= 0; {
		if stable, ok := known[s[i:i+uuidLength]]; ok {
			out += s[done:i] + stable
			done = i + uuidLength
			i = nextUUID(s, done)
		} else {
			i = nextUUID(s, i+1)
		}
	}
	return out + s[done:]
}

// stableText returns a string without the parts that differ from run to run.
func stableText(s string, replace func(string) string) string {
	if isTime(s) {
		return "(time)"
	}
	if s = replace(s); nextUUID(s, 0) < 0 {
		return s
	}
	return uuid.ReplaceAllLiteralString(s, "(uuid)")
}

// isTime reports whether a string is a point in time.
func isTime(s string) bool {
	if len(s) < len("2006-01-02T") || s[4] != '-' || s[7] != '-' || s[10] != 'T' {
		return false // without the cost of an error
	}
	_, err := time.Parse(time.RFC3339, s)
	return err == nil
}

func stableMap(m map[string]any, generation json.Number, replace func(string) string) map[string]any {
	out := make(map[string]any, len(m))
	for name, v := range m {
		switch {
		case name == "resourceVersion":
		case name == "observedGeneration" && v == generation:
			out[name] = "(current)"
		case name == "observedGeneration":
			out[name] = "(older)"
		default:
			out[name] = stableValue(v, generation, replace)
		}
		if name == "conditions" {
			sortValues(out[name])
		}
	}
	return out
}

func stableValue(v any, generation json.Number, replace func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		return stableMap(v, generation, replace)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = stableValue(v[i], generation, replace)
		}
		return out
	case string:
		return stableText(v, replace)
	}
	return v
}

// sortValues sorts a list in place by the text of its values. Other values stay.
func sortValues(v any) {
	list, _ := v.([]any)
	slices.SortStableFunc(list, func(a, b any) int {
		return cmp.Compare(yamlText(a), yamlText(b))
	})
}
