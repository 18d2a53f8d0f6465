// Command declared generates the packages below internal/builtin/declared: the validation rules that the types of
// k8s.io/api declare in comments (+k8s: tags), as Go code. It runs Kubernetes' validation-gen of the version of k8s.io/api
// in go.mod, on a copy of the types in a temporary folder.
//
// The copy lacks the rules in +k8s:alpha(...): no kube-apiserver enforces them. Without them, types that have no other
// rules cost nothing. It also lacks +k8s:customValidation, whose functions are not published; all of them are in fields of
// feature gates that are disabled by default.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// versions are the API versions whose types have rules, as folders of k8s.io/api.
var versions = []string{
	"admissionregistration/v1", "autoscaling/v1", "autoscaling/v2", "batch/v1", "certificates/v1", "core/v1", "discovery/v1",
	"flowcontrol/v1", "networking/v1", "node/v1", "rbac/v1", "resource/v1", "storage/v1",
}

// readOnly are packages whose types have no rules of their own.
var readOnly = []string{
	"k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/types", "k8s.io/apimachinery/pkg/util/intstr", "time", "k8s.io/api/scheduling/v1alpha3",
}

// disabled are the feature gates that are disabled by default and have rules for their fields.
var disabled = []string{
	"CSIVolumeHealth", "DRADerivedAttributes", "DRADeviceCompatibilityGroups", "DRANodeAllocatableResources", "DRAOptionalNodeOperations",
	"DRAPartitionableDevicesType", "EvictionRequestAPI", "InPlacePodVerticalScalingSchedulerPreemption", "WorkloadWithJob",
}

// The tags that the copy lacks, and the types, which get a tag: the linter of validation-gen fails on fields of which only
// some tags are left.
var (
	never    = regexp.MustCompile(`(?m)^\s*// \+k8s:(alpha\(.*|customValidation)\n`)
	rule     = regexp.MustCompile(`(?m)^\s*// \+k8s:.*\n`)
	comments = regexp.MustCompile(`(?m)(?:^\t// ?.*\n)+\t\w+ (\[\])?`)
	ofGate   = regexp.MustCompile(`(?m)^\t// \+featureGate=(` + strings.Join(disabled, "|") + `)$`)
	types    = regexp.MustCompile(`(?m)^type [A-Z]`)
)

func main() {
	log.SetFlags(0)
	if err := generate("internal/builtin/declared"); err != nil {
		log.Fatal(err)
	}
}

func generate(into string) error {
	tmp, err := os.MkdirTemp("", "declared-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	version, err := copyModule("k8s.io/api", filepath.Join(tmp, "api"))
	if err != nil {
		return err
	}
	if _, err := copyModule("k8s.io/apimachinery", filepath.Join(tmp, "apimachinery")); err != nil {
		return err
	}
	module := fmt.Sprintf("module declared\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/api %[1]s\n\tk8s.io/apimachinery %[1]s\n)\n\nreplace (\n"+
		"\tk8s.io/api => ./api\n\tk8s.io/apimachinery => ./apimachinery\n)\n", version)
	if err := os.WriteFile(filepath.Join(tmp, "go.mod"), []byte(module), 0o644); err != nil {
		return err
	}
	args := []string{"run", "k8s.io/code-generator/cmd/validation-gen@" + version, "--output-file", "validations.go"}
	for _, p := range readOnly {
		args = append(args, "--readonly-pkg", p)
	}
	for _, v := range versions {
		if err := writePackage(filepath.Join(tmp, folder(v)), v); err != nil {
			return err
		}
		args = append(args, "declared/"+folder(v))
	}
	for _, args := range [][]string{{"mod", "tidy"}, args} {
		if err := run(tmp, args...); err != nil {
			return err
		}
	}
	for _, v := range versions {
		if err := copyPackage(filepath.Join(tmp, folder(v)), filepath.Join(into, folder(v))); err != nil {
			return err
		}
	}
	return nil
}

// folder returns the folder and the name of the package for a version: appsv1 for apps/v1.
func folder(version string) string { return strings.ReplaceAll(version, "/", "") }

// copyModule copies a module of go.mod without the tags that are left out, and returns its version.
func copyModule(module, into string) (version string, err error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err := os.CopyFS(into, os.DirFS(dir)); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(into, "*/*/types.go"))
	if err != nil {
		return "", err
	}
	meta := filepath.Join(into, "pkg/apis/meta/v1/types.go")
	if _, err := os.Stat(meta); err == nil {
		files = append(files, meta)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		text = never.ReplaceAll(text, nil)
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
		text = types.ReplaceAllFunc(text, func(m []byte) []byte { return append([]byte("// +k8s:validation-gen-nolint\n"), m...) })
		if err := os.Remove(f); err != nil { // a file of the module cache is read-only
			return "", err
		}
		if err := os.WriteFile(f, text, 0o644); err != nil {
			return "", err
		}
	}
	return version, nil
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
		if err := os.WriteFile(filepath.Join(into, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
