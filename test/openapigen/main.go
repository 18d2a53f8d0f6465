// Command openapigen makes internal/openapi/schemas.json.gz: what the published Go
// types say of their structure, extracted by the field's own tool. Run it from the
// folder internal/openapi, by go generate, after a change of the version of
// Kubernetes.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages hold the types that are served.
var packages = strings.Fields(`
k8s.io/apimachinery/pkg/apis/meta/v1
k8s.io/apimachinery/pkg/api/resource
k8s.io/apimachinery/pkg/util/intstr
k8s.io/apimachinery/pkg/runtime
k8s.io/apimachinery/pkg/version
k8s.io/api/admissionregistration/v1
k8s.io/api/apps/v1
k8s.io/api/authentication/v1
k8s.io/api/authorization/v1
k8s.io/api/autoscaling/v1
k8s.io/api/autoscaling/v2
k8s.io/api/batch/v1
k8s.io/api/certificates/v1
k8s.io/api/coordination/v1
k8s.io/api/core/v1
k8s.io/api/discovery/v1
k8s.io/api/events/v1
k8s.io/api/flowcontrol/v1
k8s.io/api/networking/v1
k8s.io/api/node/v1
k8s.io/api/policy/v1
k8s.io/api/rbac/v1
k8s.io/api/resource/v1
k8s.io/api/scheduling/v1
k8s.io/api/storage/v1
k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1
k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
`)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "openapigen:", err)
		os.Exit(1)
	}
}

// generate extracts definitions into a package beside the dumping program, runs
// that, and takes the file away again.
func generate() error {
	out, err := filepath.Abs("schemas.json.gz")
	if err != nil {
		return err
	}
	dir := filepath.Join("..", "..", "test", "openapigen", "dump", "definitions")
	defer os.Remove(filepath.Join(dir, "definitions.go"))
	args := append([]string{"tool", "openapi-gen", "--output-dir", dir, "--output-pkg", "definitions", "--output-file", "definitions.go",
		"--go-header-file", os.DevNull, "--report-filename", os.DevNull}, packages...)
	if err := run("go", args...); err != nil {
		return err
	}
	return run("go", "run", "-tags", "dump", "../../test/openapigen/dump", out)
}

func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
