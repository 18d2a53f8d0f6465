// Command declared generates the packages below internal/builtin/declared: the validation rules that the types of
// k8s.io/api declare in comments (+k8s: tags), as Go code. It runs Kubernetes' validation-gen of the version of k8s.io/api
// in go.mod, on copies of the types in a temporary folder.
//
// No kube-apiserver enforces rules in +k8s:alpha(...), but they can end the validation of a field before its other rules
// run. The command therefore generates twice: first without them, to find the kinds that have rules to enforce, and then
// all rules of these kinds. The rules of fields whose feature gates are disabled are left out: the server drops those fields.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/features"
)

// versions are the API versions that are served by default, as folders of k8s.io/api.
var versions = []string{
	"admissionregistration/v1", "apps/v1", "autoscaling/v1", "autoscaling/v2", "batch/v1", "certificates/v1", "coordination/v1",
	"core/v1", "discovery/v1", "events/v1", "flowcontrol/v1", "networking/v1", "node/v1", "policy/v1", "rbac/v1", "resource/v1",
	"scheduling/v1", "storage/v1", "storagemigration/v1",
}

// readOnly are packages whose types have no rules of their own.
var readOnly = []string{
	"k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/types", "k8s.io/apimachinery/pkg/util/intstr", "time", "k8s.io/api/scheduling/v1alpha3",
}

// inUnion are disabled feature gates whose fields are members of a union: its messages name all members.
var inUnion = []string{"DRAListTypeAttributes"}

// disabled returns the feature gates whose fields the server drops. Their rules are left out.
func disabled() []string {
	return slices.DeleteFunc(features.Default().Dropped(), func(gate string) bool { return slices.Contains(inUnion, gate) })
}

// module is the path of the generated packages, which import each other.
const module = "github.com/tidemark-dev/tidemark/internal/builtin/declared"

// The parts of types.go. Each type gets a tag that turns the linter of validation-gen off: the linter fails on fields that
// have lost some of their tags.
var (
	alpha    = regexp.MustCompile(`(?m)^\s*// \+k8s:alpha\(.*\n`)
	custom   = regexp.MustCompile(`(?m)^\s*// \+k8s:(?:beta\([^)]*\)=\+k8s:)?customValidation\n`) // the functions are not published
	rule     = regexp.MustCompile(`(?m)^\s*// \+k8s:.*\n`)
	comments = regexp.MustCompile(`(?m)(?:^\t// ?.*\n)+\t\w+ (\[\])?`)
	ofGate   = regexp.MustCompile(`(?m)^\t// \+featureGate=(` + strings.Join(disabled(), "|") + `)$`)
	types    = regexp.MustCompile(`(?m)^type ([A-Z]\w*) `)
	root     = regexp.MustCompile(`(?m)^\t// type (\w+)$`)
)

func main() {
	log.SetFlags(0)
	if err := generate("."); err != nil {
		log.Fatal(err)
	}
}

func generate(into string) error {
	tmp, err := os.MkdirTemp("", "declared-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	first := pass{dir: filepath.Join(tmp, "enforced"), enforced: true}
	if err := first.run(); err != nil {
		return err
	}
	all := pass{dir: filepath.Join(tmp, "all"), kinds: map[string]string{}}
	for _, v := range versions {
		text, err := os.ReadFile(filepath.Join(first.dir, folder(v), "validations.go"))
		if err != nil {
			return err
		}
		for _, m := range root.FindAllSubmatch(text, -1) {
			all.kinds[v] += string(m[1]) + " "
		}
	}
	if err := all.run(); err != nil {
		return err
	}
	for _, v := range versions {
		if all.kinds[v] == "" {
			continue
		}
		if err := copyPackage(filepath.Join(all.dir, folder(v)), filepath.Join(into, folder(v))); err != nil {
			return err
		}
	}
	return nil
}

// A pass generates the rules of all versions in a folder.
type pass struct {
	dir string
	// enforced leaves out the rules that are not enforced.
	enforced bool
	// kinds are the kinds of each version whose rules are generated, with a space after each; nil: those of all kinds.
	kinds map[string]string
}

func (p *pass) run() error {
	version, err := p.copyModule("k8s.io/api", "api")
	if err != nil {
		return err
	}
	if _, err := p.copyModule("k8s.io/apimachinery", "apimachinery"); err != nil {
		return err
	}
	text := fmt.Sprintf("module "+module+"\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/api %[1]s\n\tk8s.io/apimachinery %[1]s\n)\n\nreplace (\n"+
		"\tk8s.io/api => ./api\n\tk8s.io/apimachinery => ./apimachinery\n)\n", version)
	if err := os.WriteFile(filepath.Join(p.dir, "go.mod"), []byte(text), 0o644); err != nil {
		return err
	}
	args := []string{"run", "k8s.io/code-generator/cmd/validation-gen@" + version, "--output-file", "validations.go"}
	for _, r := range readOnly {
		args = append(args, "--readonly-pkg", r)
	}
	for _, v := range versions {
		if err := writePackage(filepath.Join(p.dir, folder(v)), v); err != nil {
			return err
		}
		args = append(args, module+"/"+folder(v))
	}
	for _, args := range [][]string{{"mod", "tidy"}, args} {
		if err := run(p.dir, args...); err != nil {
			return err
		}
	}
	return nil
}

// folder returns the folder and the name of the package for a version: appsv1 for apps/v1.
func folder(version string) string { return strings.ReplaceAll(version, "/", "") }

// copyModule copies a module of go.mod into a folder with other tags, and returns its version.
func (p *pass) copyModule(module, name string) (version string, err error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	into := filepath.Join(p.dir, name)
	if err := os.CopyFS(into, os.DirFS(dir)); err != nil {
		return "", err
	}
	files := []string{"pkg/apis/meta/v1"}
	if name == "api" {
		files = versions
	}
	for _, f := range files {
		path := filepath.Join(into, f, "types.go")
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if err := os.Remove(path); err != nil { // a file of the module cache is read-only
			return "", err
		}
		if err := os.WriteFile(path, p.retag(text, f), 0o644); err != nil {
			return "", err
		}
	}
	return version, nil
}

// retag returns the types of a folder with the tags of the pass.
func (p *pass) retag(text []byte, folder string) []byte {
	if p.enforced || strings.HasPrefix(folder, "pkg/") { // no rule of metadata is enforced
		text = alpha.ReplaceAll(text, nil)
	}
	text = custom.ReplaceAll(text, nil)
	text = comments.ReplaceAllFunc(text, func(m []byte) []byte {
		if !ofGate.Match(m) {
			return m
		}
		opaque := "\t// +k8s:opaqueType\n"
		if bytes.HasSuffix(m, []byte("[]")) {
			opaque = "\t// +k8s:eachVal=+k8s:opaqueType\n"
		}
		return append([]byte(opaque), rule.ReplaceAll(m, nil)...)
	})
	return types.ReplaceAllFunc(text, func(m []byte) []byte {
		tags := "// +k8s:validation-gen-nolint\n"
		name := string(types.FindSubmatch(m)[1])
		if p.kinds != nil && hasMetadata(text, name) && !strings.Contains(" "+p.kinds[folder], " "+name+" ") {
			tags += "// +k8s:validation-gen=false\n"
		}
		return append([]byte(tags), m...)
	})
}

// hasMetadata reports whether a type is a kind.
func hasMetadata(text []byte, name string) bool {
	return regexp.MustCompile(`(?m)^type ` + name + ` struct \{\n(?:\t?//.*\n)*\tmetav1\.TypeMeta`).Match(text)
}

// writePackage writes the package that the generated code of a version belongs to.
func writePackage(dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf(`// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/%[2]s

// Package %[1]s has the validation rules that the types of %[2]s declare.
package %[1]s

import (
	_ "k8s.io/api/%[2]s"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
`, folder(version), version)
	return os.WriteFile(filepath.Join(dir, "doc.go"), []byte(text), 0o644)
}

func run(dir string, args ...string) error {
	c := exec.Command("go", args...)
	var out bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod"), &out, &out
	if err := c.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, &out)
	}
	return nil
}

func copyPackage(from, into string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"doc.go", "validations.go"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		text = bytes.Replace(text, []byte("DO NOT EDIT.\n"), []byte("DO NOT EDIT.\n\n//lint:file-ignore SA1019 rules name deprecated functions\n"), 1)
		if err := os.WriteFile(filepath.Join(into, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
