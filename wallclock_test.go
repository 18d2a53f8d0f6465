package tidemark_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A clockUse is a use of the wall clock, or of another measure that depends on other work on the
// machine, that a function of the tests may have.
type clockUse struct {
	in  string // file:function
	use string // such as time.Sleep
	why string
}

// clockUses lists the uses that the quick tier has.
var clockUses = []clockUse{
	{"internal/await/await.go:Nil", "time.Sleep", "the one loop that polls for what no event announces"},
	{"internal/await/await.go:Nil", "time.Now().After", "its limit of minutes only ends tests that hang"},
	{"consistentlist/model_test.go:watch", "time.NewTimer", "a handler that runs in bubbles alone: its network is pipes"},
	{"internal/registry/quota_test.go:Append", "time.Sleep", "a slow log makes requests wait together; nothing depends on how long"},
	{"internal/integration/control_clock_test.go:TestControlClock", "time.Until", "it is rounded to hours"},
	{"internal/authn/oidc/remote_test.go:RoundTrip", "time.After", "a transport that is used in a bubble alone"},
	{"internal/httpapi/bigevent_test.go:TestLargeEventsShareBytes", "runtime.ReadMemStats", "what a change allocated in all, compared with the same change before; no test runs beside it"},
	{"internal/httpapi/page_test.go:TestMountTimeout", "time.Until", "its bound is half an hour"},
	{"internal/http2/http2_test.go:exchanges", "c.SetWriteDeadline", "the test is about deadlines, which have passed"},
	{"internal/http2/http2_test.go:exchanges", "http.NewResponseController().SetReadDeadline", "the test is about deadlines, which have passed"},
	{"internal/integration/scenario_test.go:givePeer", "time.Sleep", "only for a recording of kube-apiserver"},
	{"internal/aggregation/proxy_test.go:TestHang", "context.WithDeadline", "a deadline that has passed before the request begins"},
	{"internal/resource/invalid_test.go:TestInvalidCost", "runtime.ReadMemStats", "the bytes of one call; square cost is a thousand times the message, the bound thirty times"},
	{"test/etcdlog/cluster_test.go:copy", "time.Sleep", "the proxy polls the flag that mutes it"},
	{"test/etcdlog/failure_test.go:TestUnreachable", "context.WithTimeout", "the test proves that calls end with the deadline; nothing has to happen before it"},
	{"test/etcdlog/slow_test.go:Txn", "time.Sleep", "only tests of the full tier use slowKV"},

	{"internal/wire/cbor_test.go:cost", "runtime.ReadMemStats", "what was allocated in all, which no collection changes; no test of the package runs beside it"},
}

// longEnough is the least limit of a wait that a busy machine does not reach.
const longEnough = 30 * time.Second

// TestWallClock finds tests of the quick and change tiers that depend on the speed of the machine:
// those that sleep, measure time, wait with a limit under 30 seconds, or count goroutines or memory
// of the process. Code in a testing/synctest bubble, in a benchmark, or behind tier.Full is free to
// do so. Others use package await, a bubble, an injected clock or counts of calls.
func TestWallClock(t *testing.T) {
	found := map[clockUse][]string{} // positions, by use without a reason
	for _, files := range testFiles(t) {
		for _, f := range readPackage(t, files) {
			for _, u := range f.uses {
				key := clockUse{in: filepath.ToSlash(f.file) + ":" + f.name, use: u.what}
				found[key] = append(found[key], u.position)
			}
		}
	}
	for _, u := range clockUses {
		key := clockUse{in: u.in, use: u.use}
		if u.why == "" {
			t.Errorf("%s has no reason for %s", u.in, u.use)
		}
		if _, ok := found[key]; !ok {
			t.Errorf("clockUses is stale: %s does not use %s", u.in, u.use)
		}
		delete(found, key)
	}
	for _, key := range slices.SortedFunc(maps.Keys(found), func(a, b clockUse) int { return strings.Compare(a.in+a.use, b.in+b.use) }) {
		t.Errorf("%s: %s uses %s, which depends on the machine: wait with package await, use a testing/synctest bubble or tier.Full, or give clockUses the reason",
			strings.Join(found[key], ", "), key.in, key.use)
	}
}

// testFiles returns the files of tests and of packages for tests, by directory.
func testFiles(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools" || path != "." && d.Name()[0] == '.'):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".go") && forTests(filepath.Dir(path)):
			all[filepath.Dir(path)] = append(all[filepath.Dir(path)], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// forTests reports whether only tests import a package.
func forTests(dir string) bool {
	switch base := filepath.Base(dir); base {
	case "await", "servertest", "storetest", "kmstest", "oidctest", "webhooktest", "policytest", "servers", "freeport":
		return true
	}
	return false
}

// A testFunction is a function of a test file.
type testFunction struct {
	file, name string
	uses       []timedUse
	mentions   map[string]bool // functions of the package that it names outside bubbles
	full       bool            // it calls tier.Full
}

// A timedUse is a use of the wall clock outside bubbles.
type timedUse struct{ what, position string }

// readPackage returns the functions of files of one directory that run outside bubbles, benchmarks and the full tier.
func readPackage(t *testing.T, files []string) []*testFunction {
	t.Helper()
	set := token.NewFileSet()
	var all []*testFunction
	inBubble := map[string]bool{} // functions that a bubble names
	var declarations []ast.Decl
	for _, path := range files {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		declarations = append(declarations, file.Decls...)
	}
	limits := durations{}
	for _, d := range declarations {
		limits.read(d)
	}
	for _, d := range declarations {
		f := &testFunction{file: set.Position(d.Pos()).Filename, mentions: map[string]bool{}}
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.name = d.Name.Name
				f.read(set, d.Body, inBubble, limits)
				all = append(all, f)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs { // a table of functions is like a function that calls them
				if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR && len(v.Values) > 0 {
					f := &testFunction{file: f.file, name: v.Names[0].Name, mentions: map[string]bool{}}
					f.read(set, v, inBubble, limits)
					all = append(all, f)
				}
			}
		}
	}
	if !slices.ContainsFunc(all, func(f *testFunction) bool {
		return strings.HasPrefix(f.name, "Test") && f.name != "TestMain" && !f.full
	}) && slices.ContainsFunc(all, func(f *testFunction) bool { return f.full }) {
		return nil // the whole package is in the full tier
	}
	// A function is free if it is an entry point that is free, or if only free ones and bubbles mention it.
	free := map[*testFunction]bool{}
	for changed := true; changed; {
		changed = false
		for _, f := range all {
			if free[f] || !f.free(all, free, inBubble) {
				continue
			}
			free[f], changed = true, true
		}
	}
	return slices.DeleteFunc(all, func(f *testFunction) bool { return free[f] })
}

// free reports whether a function runs only in bubbles, benchmarks and the full tier, as far as is known.
func (f *testFunction) free(all []*testFunction, known map[*testFunction]bool, inBubble map[string]bool) bool {
	if f.full || strings.HasPrefix(f.name, "Benchmark") {
		return true
	}
	mentioned := inBubble[f.name]
	for _, by := range all {
		if by != f && by.mentions[f.name] {
			mentioned = true
			if !known[by] {
				return false
			}
		}
	}
	return mentioned
}

// read finds the uses and mentions of a function.
func (f *testFunction) read(set *token.FileSet, body ast.Node, inBubble map[string]bool, limits durations) {
	var walk func(n ast.Node, bubble bool)
	walk = func(n ast.Node, bubble bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if bubble {
					inBubble[n.Name] = true
				} else {
					f.mentions[n.Name] = true
				}
			case *ast.CallExpr:
				name := callee(n)
				switch {
				case name == "synctest.Test":
					for _, a := range n.Args {
						walk(a, true)
					}
					return false
				case name == "tier.Full":
					f.full = true
				case !bubble && limits.dependsOnMachine(name, n.Args):
					f.uses = append(f.uses, timedUse{name, set.Position(n.Pos()).String()})
				}
			}
			return true
		})
	}
	walk(body, false)
}

// callee returns the called function: a.b, a.b().c, or "" for something else.
func callee(c *ast.CallExpr) string {
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch x := s.X.(type) {
	case *ast.Ident:
		return x.Name + "." + s.Sel.Name
	case *ast.CallExpr:
		if name := callee(x); name != "" {
			return name + "()." + s.Sel.Name
		}
	}
	return "." + s.Sel.Name
}

// dependsOnMachine reports whether a call depends on the speed of the machine or on other work in the process.
func (d durations) dependsOnMachine(name string, args []ast.Expr) bool {
	switch name {
	case "time.Sleep", "time.Since", "time.Until", "time.Tick", "time.NewTicker",
		"time.Now().After", "time.Now().Before", "time.Now().Sub",
		"runtime.NumGoroutine", "runtime.ReadMemStats":
		return true
	case "time.After", "time.NewTimer", "time.AfterFunc":
		return d.value(args[0]) < longEnough
	case "context.WithTimeout", "context.WithTimeoutCause":
		return d.value(args[1]) < longEnough
	case "context.WithDeadline", "context.WithDeadlineCause":
		return true
	}
	for _, method := range []string{".SetDeadline", ".SetReadDeadline", ".SetWriteDeadline"} {
		if strings.HasSuffix(name, method) {
			return true
		}
	}
	return false
}

// durations has the durations of a package's constants, by name.
type durations map[string]time.Duration

// read adds the constants of a declaration.
func (d durations) read(declared ast.Decl) {
	g, ok := declared.(*ast.GenDecl)
	if !ok || g.Tok != token.CONST {
		return
	}
	for _, spec := range g.Specs {
		v := spec.(*ast.ValueSpec)
		for i, value := range v.Values {
			d[v.Names[i].Name] = d.value(value)
		}
	}
}

// value is the value of a constant duration, or zero.
func (d durations) value(e ast.Expr) time.Duration {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, _ := strconv.ParseInt(e.Value, 0, 64)
		return time.Duration(n)
	case *ast.Ident:
		return d[e.Name]
	case *ast.SelectorExpr:
		return map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour, "Millisecond": time.Millisecond, "Microsecond": time.Microsecond}[e.Sel.Name]
	case *ast.BinaryExpr:
		if e.Op == token.MUL {
			return d.value(e.X) * d.value(e.Y)
		}
	}
	return 0
}

// TestDurations holds which durations TestWallClock reads.
func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"time.Minute": time.Minute, "30 * time.Second": 30 * time.Second, "2*time.Hour": 2 * time.Hour, "wait": time.Second, "later()": 0, "5": 5,
	} {
		e, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := (durations{"wait": time.Second}).value(e); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
