package tidemarktest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// change returns a change of the ConfigMap default/a, or of another object, by "user".
func change(revision uint64, user, before, after string) Change {
	c := Change{Revision: revision, Verb: "update", Actor: &Actor{User: user}, Collection: "configmaps", Key: "default/a"}
	for text, to := range map[string]*json.RawMessage{before: &c.Before, after: &c.After} {
		if text != "" {
			*to = json.RawMessage(text)
		}
	}
	return c
}

// row returns changes of one object through contents, by users in turn.
func row(users []string, contents ...string) []Change {
	var list []Change
	for i := range contents[1:] {
		list = append(list, change(uint64(i+1), users[i%len(users)], contents[i], contents[i+1]))
	}
	return list
}

func TestMatch(t *testing.T) {
	c := Change{Verb: "patch", Collection: "deployments.apps", Key: "shop/web", Actor: &Actor{User: "system:admin", UserAgent: "manager/v1", FieldManager: "web-operator"}}
	for _, test := range []struct {
		m    Match
		want bool
	}{
		{Match{}, true},
		{Match{Verb: "patch", Resource: "deployments", Name: "web", By: "manager/"}, true},
		{Match{Resource: "deployments.apps", Name: "shop/web", By: "operator"}, true},
		{Match{Resource: "deploy"}, false},
		{Match{Name: "eb"}, false},
		{Match{By: "scheduler"}, false},
		{Match{Verb: "update"}, false},
	} {
		if got := test.m.matches(&c); got != test.want {
			t.Errorf("%v: %t", test.m, got)
		}
	}
	c.Actor = nil
	if (Match{By: "x"}).matches(&c) || !(Match{}).matches(&c) {
		t.Error("an unknown actor")
	}
}

// TestHotLoopRate: writes that come slowly are heartbeats, also beside a loop that is hot for a while.
func TestHotLoopRate(t *testing.T) {
	contents := make([]string, 40)
	for i := range contents {
		contents[i] = fmt.Sprintf(`{"status":{"time":"2026-01-01T00:00:%02dZ"}}`, i)
	}
	for name, test := range map[string]struct {
		between func(i int) time.Duration
		want    []int
	}{
		"an hour":              {func(int) time.Duration { return time.Hour }, nil},
		"ten seconds":          {func(int) time.Duration { return 10 * time.Second }, nil},
		"two seconds":          {func(int) time.Duration { return 2 * time.Second }, []int{39}},
		"an hour, then faster": {func(i int) time.Duration { return []time.Duration{time.Hour, time.Second}[i/20] }, []int{19}},
	} {
		list := row([]string{"me"}, contents...)
		at := time.Time{}
		for i := range list {
			list[i].Time = at
			at = at.Add(test.between(i))
		}
		var got []int
		for _, hot := range hotLoops(list) {
			got = append(got, len(hot))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s between two writes: hot loops of %d writes, want %d", name, got, test.want)
		}
	}
}

func TestReturns(t *testing.T) {
	const a, b, c = `{"data":{"x":"a"}}`, `{"data":{"x":"b"}}`, `{"data":{"x":"c"}}`
	for _, test := range []struct {
		list []Change
		want int
	}{
		{row([]string{"u"}, "", a, b, c), 0},
		{row([]string{"u"}, a, b, a), 0},
		{row([]string{"u", "v"}, a, b, a, b), 1},
		{row([]string{"u"}, "", a, "", a), 0},
		{row([]string{"u"}, a, `{"data":{"x":"a"},"metadata":{"resourceVersion":"7"}}`, a, a), 0},
	} {
		if got := returns(test.list); len(got) != test.want {
			t.Errorf("%v: %d objects do not converge, want %d", test.list, len(got), test.want)
		}
	}
}

func TestHotLoops(t *testing.T) {
	status := func(n, from int) []string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"spec":{"size":1},"status":{"n":%d}}`, from+i))
		}
		return list
	}
	spec := func(n int) []string {
		list := status(n, 0)
		for i := range list {
			list[i] = strings.Replace(list[i], `"size":1`, fmt.Sprintf(`"size":%d`, i), 1)
		}
		return list
	}
	times := func(n int) []string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"status":{"seen":"2026-01-01T00:00:%02dZ"}}`, i))
		}
		return list
	}
	disturbed := slices.Insert(row([]string{"u"}, status(13, 0)...), 6,
		Change{Revision: 100, Collection: "pods", Key: "default/p", Actor: &Actor{User: "kubelet"}, After: json.RawMessage(`{}`)})
	two := row([]string{"u", "v"}, times(23)...)
	turns := func(objects, n int) []Change { // one actor writes the status of objects in turn
		var list []Change
		for i := range objects {
			for j, c := range row([]string{"u"}, status(n, 0)...) {
				c.Key, c.Revision = fmt.Sprint("default/", i), uint64(j*objects+i+1)
				list = append(list, c)
			}
		}
		slices.SortFunc(list, func(a, b Change) int { return int(a.Revision) - int(b.Revision) })
		return list
	}
	var children []Change // the status of each of 20 objects is a reason for that of one
	for i, parent := range row([]string{"u"}, status(21, 0)...) {
		child := row([]string{"u"}, status(3, 0)...)[1]
		child.Key, child.Revision, parent.Revision = fmt.Sprint("default/child-", i), uint64(2*i+1), uint64(2*i+2)
		children = append(children, child, parent)
	}
	for name, test := range map[string]struct {
		list []Change
		want int
	}{
		"status":               {row([]string{"u"}, status(11, 0)...), 1},
		"few":                  {row([]string{"u"}, status(10, 0)...), 0},
		"a rollout":            {row([]string{"u"}, spec(20)...), 0},
		"an input in between":  {disturbed, 0},
		"heartbeats of two":    {two, 2},
		"two that react":       {row([]string{"u", "v"}, status(40, 0)...), 0},
		"points in time alone": {row([]string{"u"}, times(12)...), 1},
		"two in turn":          {turns(2, 20), 2},
		"three in turn":        {turns(3, 20), 3},
		"a few in turn":        {turns(3, 10), 0},
		"many children":        {children, 0},
	} {
		if got := hotLoops(test.list); len(got) != test.want {
			t.Errorf("%s: %d hot loops, want %d: %v", name, len(got), test.want, got)
		}
	}
}

// TestEnds: two runs with other UIDs, generated names and points in time have the same ends.
func TestEnds(t *testing.T) {
	run := func(uid, x, y string, swap bool) []Change {
		pod := func(name, app, uid string) Change {
			return Change{Collection: "pods", Key: "default/web-" + name, Actor: &Actor{User: "u"}, After: json.RawMessage(
				`{"metadata":{"name":"web-` + name + `","generateName":"web-","uid":"` + uid + app + `","generation":2,"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"app":"` + app + `"},"status":{"observedGeneration":2,"at":"2026-01-01T00:00:0` + uid[:1] + `Z"}}`)}
		}
		list := []Change{pod(x, "a", uid), pod(y, "b", "3"+uid[1:])}
		if swap {
			slices.Reverse(list)
		}
		list = append(list, change(9, "u", "", `{"data":{"first":"web-`+x+`","second":"pod/web-`+y+`","uid":"`+uid+`a"}}`))
		list = append(list, Change{Collection: "events", Key: "default/e." + x, After: json.RawMessage(`{}`)})
		list = append(list, Change{Collection: "configmaps", Key: "default/kube-root-ca.crt", After: json.RawMessage(`{}`)})
		gone := Change{Collection: "configmaps", Key: "default/gone", Before: json.RawMessage(`{"data":{}}`)}
		same := Change{Collection: "configmaps", Key: "default/same", Before: json.RawMessage(`{"metadata":{"resourceVersion":"1"}}`), After: json.RawMessage(`{"metadata":{"resourceVersion":"2"}}`)}
		return append(list, gone, same)
	}
	kept := new(renderings)
	one, err := ends(run("11111111-1111-4111-8111-11111111111", "aaaaa", "bbbbb", false), kept)
	if err != nil {
		t.Fatal(err)
	}
	rendered := len(kept.texts)
	second := run("21111111-1111-4111-8111-11111111111", "zzzzz", "ccccc", true)
	two, err := ends(second, kept)
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffEnds(one, two); diff != "" {
		t.Errorf("the ends differ:\n%s", diff)
	}
	if len(kept.texts) != rendered {
		t.Errorf("%d texts after the first run, %d after the second", rendered, len(kept.texts))
	}
	if alone, err := ends(second, nil); err != nil || !slices.Equal(alone, two) {
		t.Errorf("without the texts of the first run: %v %v", alone, err)
	}
	text := goldenText(one)
	for _, part := range []string{"# configmaps default/gone\n# (deleted)\n", "first: web-(1)\n", "second: pod/web-(2)\n", "# pods default/web-(2)\n", "  observedGeneration: (current)\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("the golden text lacks %q:\n%s", part, text)
		}
	}
	if strings.Contains(text, "1111") || strings.Contains(text, "same") || strings.Contains(text, "root-ca") || strings.Contains(text, "2026") {
		t.Errorf("the golden text has too much:\n%s", text)
	}
	if diff := diffEnds(one, parseGolden(strings.ReplaceAll(text, "\n", "\r\n"))); diff != "" {
		t.Errorf("a golden file that is read again:\n%s", diff)
	}
}

// TestSameEnd: SameEnd shows the fields that differ also if only one of the runs has changed the object. It accepts a
// run that does nothing where the other one changes an object and changes it back.
func TestSameEnd(t *testing.T) {
	const uid = "11111111-1111-4111-8111-111111111111"
	settings := func(before, after string) Change {
		version := func(value string) json.RawMessage {
			return json.RawMessage(`{"metadata":{"name":"settings","uid":"` + uid + `"},"data":{"a":"` + value + `","b":"same"}}`)
		}
		return Change{Collection: "configmaps", Key: "default/settings", Actor: &Actor{User: "u"}, Before: version(before), After: version(after)}
	}
	child := Change{Collection: "configmaps", Key: "default/child", Actor: &Actor{User: "u"}, After: json.RawMessage(`{"metadata":{"ownerReferences":[{"uid":"` + uid + `"}]}}`)}
	for name, test := range map[string]struct {
		first, disturbed []Change
		want             string
	}{
		"first":     {[]Change{child, settings("1", "2")}, []Change{child}, "  configmaps default/settings\n-       a: \"2\"\n+       a: \"1\""},
		"disturbed": {[]Change{child}, []Change{child, settings("1", "2")}, "  configmaps default/settings\n-       a: \"1\"\n+       a: \"2\""},
		"back":      {[]Change{child, settings("1", "2"), settings("2", "1")}, []Change{child}, ""},
		"forth":     {[]Change{child}, []Change{settings("1", "2"), settings("2", "1"), child}, ""},
	} {
		first, err := newRun(test.first, nil)
		if err != nil {
			t.Fatal(err)
		}
		disturbed, err := newRun(test.disturbed, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := SameEnd()(first, disturbed); err != nil {
			_, got, _ = strings.Cut(err.Error(), "\n")
		}
		if got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, test.want)
		}
	}
}

func TestYAML(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"K","a":1,"apiVersion":"v1"}`:      "apiVersion: v1\nkind: K\na: 1\n",
		`{"a":[],"b":{},"c":null,"d":true}`:         "a: []\nb: {}\nc: null\nd: true\n",
		`{"a":["x",{"b":1,"c":[2]},[3]]}`:           "a:\n- x\n- b: 1\n  c:\n  - 2\n- - 3\n",
		`{"a":"true","b":"12","c":"x: y","d":" x"}`: "a: \"true\"\nb: \"12\"\nc: \"x: y\"\nd: \" x\"\n",
		`{"a":"one\n\n two\n","b":"x\ny"}`:          "a: |\n  one\n\n   two\nb: |-\n  x\n  y\n",
		`{"a":"x\n\n","b":"<&>","c":"x \ny"}`:       "a: \"x\\n\\n\"\nb: \"<&>\"\nc: |-\n  x \n  y\n",
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if got := yamlText(v); got != want {
			t.Errorf("%s:\n%s, want\n%s", text, got, want)
		}
	}
}

func TestDiff(t *testing.T) {
	lines := func(s string) []string { return strings.Split(s, "") }
	if got := strings.Join(strings.Fields(strings.Join(diffLines(lines("abcdef"), lines("axcef")), " ")), ""); got != "-b+x-d" {
		t.Errorf("the lines: %s", got)
	}
	one := []endObject{{id: "a 1", text: "x\n"}, {id: "b 1", text: "x\n"}}
	two := []endObject{{id: "b 1", text: "y\n"}, {id: "c 1", text: "x\n"}}
	want := "- a 1\n-     x\n  b 1\n-     x\n+     y\n+ c 1\n+     x"
	if got := diffEnds(one, two); got != want {
		t.Errorf("the ends:\n%s", got)
	}
	c := change(1, "u", `{"spec":{"n":1,"old":"x"},"metadata":{"resourceVersion":"1"}}`, `{"spec":{"n":2,"new":[1]},"metadata":{"resourceVersion":"2"}}`)
	if got := strings.Join(fieldDiffs(&c), "; "); got != "spec.n: 1 -> 2; spec.new: added - 1; spec.old: removed x" {
		t.Errorf("the fields: %s", got)
	}
}

// TestSpread: each number comes once, and the first ones are spread.
func TestSpread(t *testing.T) {
	for n := range 70 {
		if n == 0 {
			continue
		}
		got := spread(n)
		sorted := slices.Sorted(slices.Values(got))
		if len(got) != n || sorted[0] != 0 || sorted[n-1] != n-1 || len(slices.Compact(sorted)) != n {
			t.Errorf("%d: %v", n, got)
		}
	}
	if got := fmt.Sprint(spread(9)); got != "[0 8 4 2 6 1 3 5 7]" {
		t.Errorf("the order is %s", got)
	}
}
