package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// scenario is one file: a header, then sections. The package comment describes the format.
type scenario struct {
	name       string // the name of its file, without the extension
	title      string
	namespaces int         // {ns}, {ns2}...
	lets       [][2]string // texts with names, in order
	hooks      map[string][]hookResponse
	steps      []*step

	file   string
	header string // everything before the first step, as written
}

// hookResponse is the response of a webhook.
type hookResponse struct {
	status   int           // of HTTP; zero: 200
	delay    time.Duration // before the response; negative: never, until the client goes
	redirect string        // the Location
	raw      string        // the body; empty: an AdmissionReview with the response
	response map[string]any
}

// step is a request and its expected results.
type step struct {
	name    string
	request request
	source  string // as written

	captures   [][2]string // variable, path
	only, drop []string
	headers    []string
	statusOnly bool
	until      []condition // the step is repeated until they hold, see run.holds
	sleep      time.Duration
	managed    bool // compare managed fields
	calls      calls
	audit      bool

	// The recordings: the response, what the webhooks received, the audit annotations.
	want [3]string
}

// request is one HTTP request.
type request struct {
	method, path string
	header       [][2]string
	body         string
}

// calls is how the calls of webhooks are shown.
type calls int

const (
	wholeCalls calls = iota
	callPaths        // without their bodies
	noCalls
)

// condition is "PATH == VALUE", "PATH exists", "status == CODE" or "calls == N".
type condition struct {
	path, value string
	part        bool // the value is a part of the text: "PATH ~= TEXT"
}

// The kinds of the recordings, in the order of step.want.
var recordings = []string{"expect", "calls", "audit"}

var marker = regexp.MustCompile(`^-- (hook|step|expect|calls|audit) ([A-Za-z0-9_.-]+) --$`)

func load(dir string) ([]*scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []*scenario
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sc, err := parse(strings.TrimSuffix(filepath.Base(file), ".txt"), string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		sc.file = file
		all = append(all, sc)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no scenarios in %s", dir)
	}
	return all, nil
}

func parse(name, text string) (*scenario, error) {
	sc := &scenario{name: name, namespaces: 1, hooks: map[string][]hookResponse{}}
	var kind, of string
	var section strings.Builder
	end := func() error {
		if err := sc.section(kind, of, section.String()); err != nil {
			return fmt.Errorf("%s %s: %w", kind, of, err)
		}
		section.Reset()
		return nil
	}
	for line := range strings.Lines(text) {
		m := marker.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m != nil {
			if err := end(); err != nil {
				return nil, err
			}
			kind, of = m[1], m[2]
		} else {
			section.WriteString(line)
		}
		if kind == "" || kind == "hook" {
			sc.header += line
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	if sc.title == "" || len(sc.steps) == 0 {
		return nil, fmt.Errorf("a scenario needs a title and steps")
	}
	return sc, nil
}

func (sc *scenario) section(kind, name, text string) error {
	switch kind {
	case "":
		return sc.parseHeader(text)
	case "hook":
		a, err := parseResponse(text)
		sc.hooks[name] = append(sc.hooks[name], a)
		return err
	case "step":
		if slices.ContainsFunc(sc.steps, func(st *step) bool { return st.name == name }) {
			return fmt.Errorf("there are two steps of this name")
		}
		st, err := parseStep(name, text)
		sc.steps = append(sc.steps, st)
		return err
	}
	if len(sc.steps) == 0 || sc.steps[len(sc.steps)-1].name != name {
		return fmt.Errorf("it does not follow its step")
	}
	sc.steps[len(sc.steps)-1].want[slices.Index(recordings, kind)] = strings.TrimRight(text, "\n") + "\n"
	return nil
}

func (sc *scenario) parseHeader(text string) (err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if variable, ok := strings.CutPrefix(key, "let "); ok {
			sc.lets = append(sc.lets, [2]string{variable, value})
			continue
		}
		switch key {
		case "title":
			sc.title = value
		case "namespaces":
			sc.namespaces, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("unknown header %q", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func parseResponse(text string) (a hookResponse, err error) {
	directives, body := cutDirectives(text)
	raw := false
	for _, d := range directives {
		word, rest, _ := strings.Cut(d, " ")
		switch word {
		case "status":
			a.status, err = strconv.Atoi(rest)
		case "delay":
			a.delay, err = time.ParseDuration(rest)
		case "hang":
			a.delay = -1
		case "redirect":
			a.redirect = rest
		case "raw":
			raw = true
		default:
			err = fmt.Errorf("unknown directive @%s", d)
		}
		if err != nil {
			return a, err
		}
	}
	if raw {
		a.raw = strings.TrimRight(body, "\n")
		return a, nil
	}
	return a, yaml.Unmarshal([]byte(body), &a.response)
}

// cutDirectives returns the lines with @ at the start of a text, and the rest.
func cutDirectives(text string) (directives []string, rest string) {
	for text != "" {
		line, after, _ := strings.Cut(text, "\n")
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "@"):
			directives = append(directives, line[1:])
		default:
			return directives, text
		}
		text = after
	}
	return directives, ""
}

func parseStep(name, text string) (*step, error) {
	st := &step{name: name, source: strings.TrimRight(text, "\n") + "\n"}
	directives, rest := cutDirectives(text)
	for _, d := range directives {
		if err := st.directive(d); err != nil {
			return st, fmt.Errorf("@%s: %w", d, err)
		}
	}
	head, body, _ := strings.Cut(strings.TrimRight(rest, "\n"), "\n\n")
	line, headers, _ := strings.Cut(head, "\n")
	var ok bool
	if st.request.method, st.request.path, ok = strings.Cut(line, " "); !ok || !strings.HasPrefix(st.request.path, "/") {
		return st, fmt.Errorf("bad request line %q", line)
	}
	for h := range strings.Lines(headers) {
		key, value, ok := strings.Cut(h, ":")
		if !ok {
			return st, fmt.Errorf("bad header line %q", h)
		}
		st.request.header = append(st.request.header, [2]string{key, strings.TrimSpace(value)})
	}
	st.request.body = body
	return st, nil
}

func (st *step) directive(text string) (err error) {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "capture":
		variable, path, ok := strings.Cut(rest, " ")
		if !ok {
			return fmt.Errorf("want a variable and a path")
		}
		st.captures = append(st.captures, [2]string{variable, path})
	case "only":
		st.only = append(st.only, rest)
	case "drop":
		st.drop = append(st.drop, rest)
	case "headers":
		st.headers = strings.Fields(rest)
	case "status":
		st.statusOnly = true
	case "managed":
		st.managed = true
	case "audit":
		st.audit = true
	case "sleep":
		st.sleep, err = time.ParseDuration(rest)
	case "until":
		path, value, ok := strings.Cut(rest, " == ")
		part := false
		if !ok {
			path, value, ok = strings.Cut(rest, " ~= ")
			part = ok
		}
		if !ok {
			path, ok = strings.CutSuffix(rest, " exists")
		}
		if !ok {
			return fmt.Errorf("want PATH == VALUE, PATH ~= TEXT or PATH exists")
		}
		st.until = append(st.until, condition{path, value, part})
	case "calls":
		shown := map[string]calls{"paths": callPaths, "none": noCalls}
		if st.calls = shown[rest]; st.calls == wholeCalls {
			err = fmt.Errorf("want paths or none")
		}
	default:
		err = fmt.Errorf("unknown directive")
	}
	return err
}

// format writes the scenario with its recordings.
func (sc *scenario) format() []byte {
	var b bytes.Buffer
	b.WriteString(strings.TrimRight(sc.header, "\n") + "\n")
	for _, st := range sc.steps {
		fmt.Fprintf(&b, "\n-- step %s --\n%s", st.name, st.source)
		for i, kind := range recordings {
			if st.want[i] != "" {
				fmt.Fprintf(&b, "\n-- %s %s --\n%s", kind, st.name, st.want[i])
			}
		}
	}
	return b.Bytes()
}
