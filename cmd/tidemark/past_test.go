//go:build unix

package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// write sends a body and returns the resource version of the response.
func (p *process) write(method, path, body string) string {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.config.Host+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var response struct {
		Metadata struct{ ResourceVersion string }
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 || json.Unmarshal(text, &response) != nil {
		p.t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, text, err)
	}
	return response.Metadata.ResourceVersion
}

// text returns the body of a response.
func (p *process) text(path string) string {
	p.t.Helper()
	text, err := io.ReadAll(p.get(path).Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK {
		p.t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
}

// contentsOf returns the content of each file of a directory, and when it was changed.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "LOCK" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		all[path] = info.ModTime().String() + "\n" + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestServeAt serves a historical state, and checks that the directory does not change.
func TestServeAt(t *testing.T) {
	t.Parallel()
	const maps, seen = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/seen"
	dir := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data-dir="+dir)
	p.write("POST", maps, `{"metadata":{"name":"seen"},"data":{"n":"1"}}`)
	p.write("POST", "/api/v1/namespaces", `{"metadata":{"name":"ending","finalizers":["example.com/held"]}}`)
	p.write("DELETE", "/api/v1/namespaces/ending", "")
	then := p.write("POST", maps, `{"metadata":{"name":"other","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"none","uid":"1"}]}}`)
	p.write("PUT", seen, `{"metadata":{"name":"seen"},"data":{"n":"2"}}`)
	p.write("DELETE", seen, "")
	if code, _, text := command("serve", dir, "--at="+then, "--port=0"); code != exitFailed || !strings.Contains(text, "is in use by process") {
		t.Errorf("beside the server: %d %s", code, text)
	}
	p.stop()
	before := contentsOf(t, dir)

	old := serve(t, dir, "--at="+then)
	if out := strings.Join(old.lines, "\n"); !strings.Contains(out, dir+" at resource version "+then) {
		t.Errorf("it prints:\n%s", out)
	}
	for path, want := range map[string]string{seen: `"n":"1"`, maps + "/other": `"resourceVersion":"` + then + `"`, maps: `"metadata":{"resourceVersion":"` + then + `"`, "/api/v1/namespaces/ending": "deletionTimestamp"} {
		if text := old.text(path); !strings.Contains(text, want) {
			t.Errorf("GET %s lacks %s: %s", path, want, text)
		}
	}
	old.write("PUT", seen, `{"metadata":{"name":"seen"},"data":{"n":"3"}}`)
	if text := old.text(seen); !strings.Contains(text, `"n":"3"`) {
		t.Errorf("after a change: %s", text)
	}
	old.stop()
	after := contentsOf(t, dir)
	for path, content := range before {
		if after[path] != content {
			t.Errorf("%s has changed", path)
		}
	}
	if len(after) != len(before) {
		t.Errorf("there were %d files, and now %d", len(before), len(after))
	}

	const future = "99999999999999999"
	if code, _, text := command("serve", dir, "--at="+future, "--port=0"); code != exitFailed || !strings.Contains(text, "the state at resource version "+future+" is not stored; the history has those from ") {
		t.Errorf("--at=%s: %d %s", future, code, text)
	}
	now := serve(t, dir)
	if code := now.get(seen).StatusCode; code != http.StatusNotFound {
		t.Errorf("the newest state: %d", code)
	}
	now.stop()
}
