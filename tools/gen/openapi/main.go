// Command openapi writes internal/openapi/schemas.json.gz: the structure of the
// published Go types, as kube-openapi's openapi-gen extracts it. Run it with
// "go generate ./internal/openapi" when the version of Kubernetes changes.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages are those whose types are served.
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
k8s.io/api/scheduling/v1alpha3
k8s.io/api/storage/v1
k8s.io/api/storagemigration/v1
k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1
k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
`)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

// generate writes the extracted definitions into the package dump/definitions, runs
// dump, and removes the definitions again.
func generate() error {
	out, err := filepath.Abs("schemas.json.gz")
	if err != nil {
		return err
	}
	dir := filepath.Join("..", "..", "tools", "gen", "openapi", "dump", "definitions")
	defer os.Remove(filepath.Join(dir, "definitions.go"))
	args := append([]string{"tool", "openapi-gen", "--output-dir", dir, "--output-pkg", "definitions", "--output-file", "definitions.go",
		"--go-header-file", os.DevNull, "--report-filename", os.DevNull}, packages...)
	if err := run("go", args...); err != nil {
		return err
	}
	return run("go", "run", "-tags", "dump", "../../tools/gen/openapi/dump", out)
}

func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
