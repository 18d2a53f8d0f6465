package tidemarktest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// loggedChanges is how many of the last changes the log of a failed test has.
const loggedChanges = 30

// dump reports the state of a failed test: as files if TIDEMARK_DUMP names a directory, and as the
// last changes in the log.
func (e *Env) dump(t TB) {
	t.Helper()
	if e.seed != 0 {
		t.Logf("tidemarktest: the seed is %d", e.seed)
	}
	if root := os.Getenv("TIDEMARK_DUMP"); root != "" {
		dir := e.dumpDir(t, root)
		revision, err := e.dumpTo(dir)
		if err != nil {
			t.Logf("tidemarktest: the dump: %v", err)
		} else {
			t.Logf("tidemarktest: the state and the history of the test are in %s; to open the state: %s", dir, e.session.openCommand(dir, revision))
		}
		return
	}
	lines, err := e.lastChanges()
	if err != nil {
		t.Logf("tidemarktest: the history: %v", err)
		return
	}
	if len(lines) == 0 {
		return
	}
	t.Logf("tidemarktest: the last changes before the end of the test, without Leases (TIDEMARK_DUMP=DIR keeps all of them, with the objects):\n%s", strings.Join(lines, "\n"))
}

// dumpDirs has the directories of the dumps so far.
var dumpDirs struct {
	sync.Mutex
	used map[string]bool
}

// newDumpDir returns the absolute path of a directory for a dump: below root, with a directory for each name. A path
// that was returned before gets a number at its end, because a test may have several Envs and several searches.
func newDumpDir(root string, names ...string) string {
	for _, name := range names {
		root = filepath.Join(root, fileName(name))
	}
	if absolute, err := filepath.Abs(root); err == nil {
		root = absolute // the command that opens it may run elsewhere
	}
	dumpDirs.Lock()
	defer dumpDirs.Unlock()
	if dumpDirs.used == nil {
		dumpDirs.used = map[string]bool{}
	}
	dir := root
	for n := 2; dumpDirs.used[dir]; n++ {
		dir = fmt.Sprintf("%s-%d", root, n)
	}
	dumpDirs.used[dir] = true
	return dir
}

// dumpDir returns the directory for the dump of the world. All calls return the same one.
func (e *Env) dumpDir(t TB, root string) string {
	r := e.root()
	r.dumpOnce.Do(func() {
		r.dumpedTo = newDumpDir(root, t.Name())
	})
	return r.dumpedTo
}

// response is a response of the control API about a world.
type response struct {
	env  *Env
	what string // the last part of its path, and its query
}

// dumpTo writes the state and the history of the world to a directory, which `tidemark serve` opens. The history begins
// with those in past. It returns the revision of the state.
func (e *Env) dumpTo(dir string, past ...response) (revision uint64, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	objects := filepath.Join(dir, "objects.jsonl")
	if err := e.save("state?format=jsonl", objects); err != nil {
		return 0, err
	}
	if revision, err = dumpedRevision(objects); err != nil {
		return 0, err
	}
	// The world may go on meanwhile.
	if err := e.save(fmt.Sprintf("state?revision=%d", revision), filepath.Join(dir, "state.yaml")); err != nil {
		return 0, err
	}
	return revision, saveAll(filepath.Join(dir, "history.jsonl"), append(past, response{e, "history"})...)
}

// dumpedRevision returns the revision of the objects of a dump, which the first line of the file has.
func dumpedRevision(objects string) (uint64, error) {
	file, err := os.Open(objects)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var first struct{ Revision uint64 }
	err = json.NewDecoder(file).Decode(&first)
	return first.Revision, err
}

// openCommand returns the command that opens a state of a dump, on a free port.
func (s *session) openCommand(dir string, revision uint64) string {
	return fmt.Sprintf("%s serve %s --at %d --secure-port=0", shellQuote(cmp.Or(s.program, "tidemark")), shellQuote(dir), revision)
}

// shellQuote quotes a word for a shell, if it needs quotes.
func shellQuote(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool { return r > '~' || strings.ContainsRune(" \t\n'\"\\$`!*?[](){}<>|&;#~^", r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
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

// save writes a response of the control API about the world to a file.
func (e *Env) save(what, path string) error { return saveAll(path, response{e, what}) }

// saveAll writes responses to a file, one after the other.
func saveAll(path string, responses ...response) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, a := range responses {
		if err := a.writeTo(file); err != nil {
			return err
		}
	}
	return file.Close()
}

func (a response) writeTo(w io.Writer) error {
	ctx, cancel := callContext()
	defer cancel()
	body, err := a.env.session.control.open(ctx, "GET", worldPath(a.env.world.Name, a.what), nil)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(w, body)
	return err
}

// lastChanges returns the last changes since the fork. Changes that follow each other have one line if they differ in nothing
// but their revisions.
func (e *Env) lastChanges() ([]string, error) {
	ctx, cancel := callContext()
	defer cancel()
	response, err := e.openHistory(ctx, e.world.Revision, 0)
	if err != nil {
		return nil, err
	}
	defer response.Close()
	var last []similar
	for d := json.NewDecoder(response); ; {
		var c struct {
			Revision              uint64
			Verb, Collection, Key string
			Actor                 *Actor
		}
		if err := d.Decode(&c); err == io.EOF {
			return lines(last), nil
		} else if err != nil {
			return nil, err
		}
		if c.Collection == "leases.coordination.k8s.io" {
			continue // the heartbeats of leaders would take all lines
		}
		what := (&Change{Verb: fmt.Sprintf("%-6s ", c.Verb), Collection: c.Collection, Key: c.Key, Actor: c.Actor}).what()
		if n := len(last) - 1; n >= 0 && last[n].what == what {
			last[n].to = c.Revision
			last[n].times++
			continue
		}
		last = append(last, similar{what, c.Revision, c.Revision, 1})
		if len(last) > loggedChanges {
			last = last[1:]
		}
	}
}

// similar are changes that follow each other and differ in nothing but their revisions.
type similar struct {
	what     string
	from, to uint64 // revisions
	times    int
}

// lines describes changes, a line each.
func lines(all []similar) []string {
	var text []string
	for _, s := range all {
		line := fmt.Sprintf("  %d  %s", s.from, s.what)
		if s.times > 1 {
			line += fmt.Sprintf(", %d times up to %d", s.times, s.to)
		}
		text = append(text, line)
	}
	return text
}
