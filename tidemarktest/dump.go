package tidemarktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// loggedChanges is how many of the last changes the log of a failed test has.
const loggedChanges = 30

// dump reports the state of a failed test: as files if TIDEMARK_DUMP names a directory, and as the
// last changes in the log.
func (e *Env) dump(t TB) {
	t.Helper()
	if root := os.Getenv("TIDEMARK_DUMP"); root != "" {
		dir := filepath.Join(root, fileName(t.Name()))
		err := os.MkdirAll(dir, 0o777)
		for _, part := range [][2]string{{"state", "state.yaml"}, {"history", "history.jsonl"}} {
			if err == nil {
				err = e.save(part[0], filepath.Join(dir, part[1]))
			}
		}
		if err != nil {
			t.Logf("tidemarktest: the dump: %v", err)
		} else {
			t.Logf("tidemarktest: the state and the history of the test are in %s", dir)
		}
		return
	}
	lines, err := e.lastChanges()
	if err != nil {
		t.Logf("tidemarktest: the history: %v", err)
		return
	}
	t.Logf("tidemarktest: the last changes before the end of the test (TIDEMARK_DUMP=DIR keeps all of them, with the objects):\n%s", strings.Join(lines, "\n"))
}

// fileName makes a test's name the name of a directory.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) || r < ' ' {
			return '_'
		}
		return r
	}, name)
}

// save writes an answer of the control API about the world to a file.
func (e *Env) save(what, path string) error {
	ctx, cancel := callContext()
	defer cancel()
	answer, err := e.session.control.open(ctx, http.MethodGet, worldPath(e.world.Name, what), nil)
	if err != nil {
		return err
	}
	defer answer.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, answer); err != nil {
		return err
	}
	return file.Close()
}

// lastChanges returns the last changes since the fork, a line each.
func (e *Env) lastChanges() ([]string, error) {
	ctx, cancel := callContext()
	defer cancel()
	path := fmt.Sprintf("%s?after=%d", worldPath(e.world.Name, "history"), e.world.Revision)
	answer, err := e.session.control.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	var lines []string
	for d := json.NewDecoder(answer); ; {
		var c struct {
			Revision              uint64
			Verb, Collection, Key string
		}
		if err := d.Decode(&c); err == io.EOF {
			return lines, nil
		} else if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("  %d  %-6s  %s %s", c.Revision, c.Verb, c.Collection, c.Key))
		if len(lines) > loggedChanges {
			lines = lines[1:]
		}
	}
}
