package dump

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpen checks which dumps open, and what the errors say about those that do not.
func TestOpen(t *testing.T) {
	const (
		first  = `{"revision":7}` + "\n"
		object = `{"collection":"/configmaps","key":"default/a","object":{"metadata":{"name":"a","resourceVersion":"7"}}}` + "\n"
		change = `{"collection":"/configmaps","key":"default/a","revision":7,"before":{"metadata":{"name":"a","resourceVersion":"5"}}}` + "\n"
	)
	for _, row := range []struct {
		name, objects, history string
		at                     uint64
		want                   uint64 // the revision, zero for an error
		wantErr                []string
	}{
		{name: "newest", objects: first + object, history: change, want: 7},
		{name: "newest by number", objects: first + object, history: change, at: 7, want: 7},
		{name: "before the change", objects: first + object, history: change, at: 6, want: 6},
		{name: "no history", objects: first + object, want: 7},
		{name: "no objects", objects: first, want: 7},
		{name: "spaces in an object", objects: first + strings.ReplaceAll(object, ":", ": "), want: 7},
		{name: "no last newline", objects: first + strings.TrimSpace(object), want: 7},
		{name: "too old", objects: first + object, history: change, at: 5, wantErr: []string{"resource version 5", "from 6 to 7"}},
		{name: "too new", objects: first + object, history: change, at: 8, wantErr: []string{"resource version 8", "from 6 to 7"}},
		{name: "empty", wantErr: []string{"objects.jsonl is empty"}},
		{name: "no revision", objects: object, wantErr: []string{"objects.jsonl: line 1", "no revision"}},
		{name: "negative revision", objects: `{"revision":-1}` + "\n", wantErr: []string{"objects.jsonl: line 1"}},
		{name: "no JSON", objects: first + "hello\n", wantErr: []string{"objects.jsonl: line 2"}},
		{name: "cut off", objects: first + object[:40], wantErr: []string{"objects.jsonl: line 2"}},
		{name: "no key", objects: first + `{"collection":"/configmaps","object":{}}` + "\n", wantErr: []string{"objects.jsonl: line 2", "lacks a collection or a key"}},
		{name: "no object", objects: first + `{"collection":"/configmaps","key":"a"}` + "\n", wantErr: []string{"objects.jsonl: line 2", "lacks an object"}},
		{name: "null", objects: first + `{"collection":"/configmaps","key":"a","object":null}` + "\n", wantErr: []string{"/configmaps a", "not a JSON object"}},
		{name: "a list", objects: first + `{"collection":"/configmaps","key":"a","object":[]}` + "\n", wantErr: []string{"/configmaps a", "not a JSON object"}},
		{name: "no metadata", objects: first + `{"collection":"/configmaps","key":"a","object":{}}` + "\n", wantErr: []string{"/configmaps a", "no metadata"}},
		{name: "no resourceVersion", objects: first + strings.Replace(object, "resourceVersion", "version", 1), wantErr: []string{"default/a", "no resourceVersion"}},
		{name: "a number", objects: first + strings.Replace(object, `"7"`, `7`, 1), wantErr: []string{"default/a", "not a positive number"}},
		{name: "zero", objects: first + strings.Replace(object, `"7"`, `"0"`, 1), wantErr: []string{"default/a", "not a positive number"}},
		{name: "leading zero", objects: first + strings.Replace(object, `"7"`, `"07"`, 1), wantErr: []string{"default/a", "not a positive number"}},
		{name: "escaped digits", objects: first + strings.Replace(object, `"7"`, `"\u0037"`, 1), wantErr: []string{"default/a", "escaped characters"}},
		{name: "from the future", objects: first + strings.Replace(object, `"7"`, `"8"`, 1), wantErr: []string{"default/a", "resource version 8"}},
		{name: "history out of order", objects: first + object, history: change + change, wantErr: []string{"history.jsonl: line 2", "7 comes after 7"}},
		{name: "history without a key", objects: first + object, history: `{"revision":7}` + "\n", wantErr: []string{"history.jsonl: line 1", "lacks a collection or a key"}},
		{name: "history that is no JSON", objects: first + object, history: "[\n", wantErr: []string{"history.jsonl: line 1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{ObjectsFile: row.objects, HistoryFile: row.history} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d, err := Open(t.Context(), dir, row.at)
			if row.want != 0 {
				if err != nil || d.Revision() != row.want {
					t.Fatalf("Open = %+v, %v, want revision %d", d, err, row.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("Open succeeded at revision %d, want an error", d.Revision())
			}
			for _, want := range row.wantErr {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

// TestOpenMissingFiles checks that the error names the file that is missing.
func TestOpenMissingFiles(t *testing.T) {
	dir := t.TempDir()
	if Is(dir) {
		t.Error("an empty directory is a dump")
	}
	if _, err := Open(t.Context(), dir, 0); err == nil || !strings.Contains(err.Error(), ObjectsFile) {
		t.Errorf("the error is %v, want it to name %s", err, ObjectsFile)
	}
	if err := os.WriteFile(filepath.Join(dir, ObjectsFile), []byte(`{"revision":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, 0); err == nil || !strings.Contains(err.Error(), HistoryFile) {
		t.Errorf("the error is %v, want it to name %s", err, HistoryFile)
	}
}
