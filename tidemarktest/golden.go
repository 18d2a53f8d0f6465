package tidemarktest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// updateGolden is the variable that makes Golden write its files.
const updateGolden = "TIDEMARK_UPDATE_GOLDEN"

// Golden compares the objects that differ from those that the Env began with to a file of YAML
// documents. With TIDEMARK_UPDATE_GOLDEN=1 it writes the file instead.
//
// The documents are the same in each run: they have no resource versions, UIDs, generations, points in
// time and field managers, generated names end with a number, and references to UIDs name the object.
// The addresses and node ports of Services are replaced. Events, Leases, the IPAddresses of Services and
// what the server puts into each namespace are left out. A deleted object is a document too. Without leaves out more.
func (e *Env) Golden(t TB, file string, options ...GoldenOption) {
	t.Helper()
	changes := e.Changes(t).list
	for _, o := range options {
		for _, name := range o.without {
			call(t, func(ctx context.Context) error { return e.checkResource(ctx, name) })
			m := Match{Resource: name}
			changes = slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return m.matches(&c) })
		}
	}
	got, err := ends(changes, nil)
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	update, err := updatesGolden()
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
		return
	}
	if update {
		err := os.MkdirAll(filepath.Dir(file), 0o777)
		if err == nil {
			err = os.WriteFile(file, []byte(goldenText(got)), 0o666)
		}
		if err != nil {
			t.Fatalf("tidemarktest: %v", err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		state := "\n" + diffEnds(nil, got)
		if len(got) == 0 {
			state = " the test has not changed any object"
		}
		t.Errorf("tidemarktest: there is no file %s: %s=1 writes it, with this state:%s", file, updateGolden, state)
		return
	}
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	if diff := diffEnds(parseGolden(string(text)), got); diff != "" {
		t.Errorf("tidemarktest: the state differs from %s (- %s, + the state); %s=1 writes the file:\n%s", file, file, updateGolden, diff)
	}
}

// updatesGolden reports whether Golden writes its files.
func updatesGolden() (bool, error) {
	text := os.Getenv(updateGolden)
	if text == "" {
		return false, nil
	}
	update, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s is %q: want 1, which makes Golden write its files, or 0", updateGolden, text)
	}
	return update, nil
}

// GoldenOption selects what Golden compares: see Without.
type GoldenOption struct{ without []string }

// Without leaves out resources, such as "pods" or "deployments.apps": those that the test is not about.
func Without(resources ...string) GoldenOption { return GoldenOption{resources} }

// goldenMark begins a document; the ID of the object follows.
const goldenMark = "---\n# "

func goldenText(objects []endObject) string {
	var b strings.Builder
	for _, o := range objects {
		text := o.text
		if text == "(deleted)\n" {
			text = "# " + text
		}
		b.WriteString(goldenMark + o.id + "\n" + text)
	}
	return b.String()
}

func parseGolden(text string) []endObject {
	var objects []endObject
	for _, document := range strings.Split("\n"+strings.ReplaceAll(text, "\r\n", "\n"), "\n"+goldenMark)[1:] {
		id, text, _ := strings.Cut(document, "\n")
		text = strings.TrimSuffix(text, "\n") + "\n"
		if text == "# (deleted)\n" {
			text = "(deleted)\n"
		}
		objects = append(objects, endObject{id: id, text: text})
	}
	return objects
}
