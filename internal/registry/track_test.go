package registry_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestManagedFieldsOfBody checks that a body whose managed fields equal the stored ones, and are
// not decoded, has the same effect as one that is decoded, also if another client changes them
// meanwhile.
func TestManagedFieldsOfBody(t *testing.T) {
	ctx := context.Background()
	as := func(manager string) registry.WriteOptions {
		return registry.WriteOptions{FieldManager: manager, FieldValidation: "Strict"}
	}
	for name, row := range map[string]struct {
		body func(stored string) string
		race bool
		want string // in the managed fields
	}{
		"as it is":        {func(o string) string { return o }, false, `"manager":"b"`},
		"unconditional":   {func(o string) string { return revisionIn.ReplaceAllString(o, "") }, false, `"manager":"b"`},
		"another manager": {func(o string) string { return revisionIn.ReplaceAllString(o, "") }, true, `"manager":"b"`},
		"none":            {func(o string) string { return managedIn.ReplaceAllString(o, "") }, false, `"manager":"b"`},
		"reset":           {func(o string) string { return managedIn.ReplaceAllString(o, `,"managedFields":[]`) }, false, ""},
		"reset, in race": {func(o string) string {
			return managedIn.ReplaceAllString(revisionIn.ReplaceAllString(o, ""), `,"managedFields":[{}]`)
		}, true, ""},
	} {
		var results []string
		for _, other := range []func(string) string{
			func(body string) string { return body },
			func(body string) string { return strings.Replace(body, `"managedFields":[`, `"managedFields": [`, 1) },
		} {
			s := newServer(t, store.Options{})
			s.Now = func() time.Time { return time.Unix(1_767_225_600, 0) }
			made, err := s.Create(ctx, s.target("configmaps", "default", ""), body(configMap("a", "x", "1")), as("a"))
			if err != nil {
				t.Fatal(err)
			}
			if row.race {
				s.Plugins = append(s.Plugins, registry.Plugin{Validate: func(ctx context.Context, a *registry.Attributes) error {
					s.Plugins = nil
					text := strings.Replace(string(made.Stored.Bytes()), `"data":{`, `"data":{"other":"1",`, 1)
					_, err := s.Update(ctx, s.target("configmaps", "default", "a"), body(text), as("c"))
					return err
				}})
			}
			text := strings.Replace(row.body(string(made.Stored.Bytes())), `"v":"1"`, `"v":"2"`, 1)
			after, err := s.Update(ctx, s.target("configmaps", "default", "a"), body(other(text)), as("b"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if managed := strings.Join(managedIn.FindStringSubmatch(string(after.Stored.Bytes())), ""); !strings.Contains(managed, row.want) || row.want == "" && managed != "" {
				t.Errorf("%s: the managed fields are %s", name, managed)
			}
			results = append(results, uidIn.ReplaceAllString(revisionIn.ReplaceAllString(string(after.Stored.Bytes()), ""), ""))
		}
		if results[0] != results[1] {
			t.Errorf("%s:\n%s\nand when all of the body is read\n%s", name, results[0], results[1])
		}
	}
}

// TestManagedTimesOfBody checks that a body that changes only times of managed fields writes nothing. With another change it
// sets the times, too.
func TestManagedTimesOfBody(t *testing.T) {
	ctx := context.Background()
	s := newServer(t, store.Options{})
	s.Now = func() time.Time { return time.Unix(1_767_225_600, 0) }
	made, err := s.Create(ctx, s.target("configmaps", "default", ""), body(configMap("a", "x", "1")), registry.WriteOptions{FieldManager: "a"})
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(made.Stored.Bytes()), `"time":"2026-01-01T00:00:00Z"`, `"time":"2004-01-01T00:00:00Z"`, 1)
	if old == string(made.Stored.Bytes()) {
		t.Fatalf("no time in %s", old)
	}
	for _, c := range []struct {
		name, body string
		writes     bool
	}{
		{"a time", old, false},
		{"no time", strings.Replace(old, `"time":"2004-01-01T00:00:00Z",`, "", 1), false},
		{"a time and a label", strings.Replace(old, `"metadata":{`, `"metadata":{"labels":{"b":"c"},`, 1), true},
	} {
		after, err := s.Update(ctx, s.target("configmaps", "default", "a"), body(c.body), registry.WriteOptions{FieldManager: "b"})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		written, changed := after.Stored.Modified != made.Stored.Modified, strings.Contains(string(after.Stored.Bytes()), "2004-01-01")
		if written != c.writes || changed != c.writes {
			t.Errorf("%s: written: %t, the time is changed: %t", c.name, written, changed)
		}
	}
}

var (
	revisionIn = regexp.MustCompile(`"resourceVersion":"\d+",`)
	uidIn      = regexp.MustCompile(`"uid":"[^"]+",`)
	managedIn  = regexp.MustCompile(`,"managedFields":\[.*?\}\}\}\]`)
)
