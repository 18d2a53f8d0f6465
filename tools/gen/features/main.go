// Command features writes what the minor versions of Kubernetes differ in, read from the sources of Kubernetes:
//
//   - internal/features/gates.go: the feature gates of kube-apiserver, with their stages, defaults and locks by version
//   - internal/features/apis.go: the kinds and fields of k8s.io/api, with their first and last versions, feature gates and
//     defaults
//
// Run it with "go generate ./internal/features" when the version of Kubernetes changes. The first of the releases is the
// one in go.mod. The older ones have the gates that are removed since, and show when a field came.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// releases are the patch releases of Kubernetes that are read, the newest first.
var releases = []release{{37, "2"}, {36, "3"}, {35, "4"}, {34, "4"}, {33, "13"}}

// release is a version 1.minor.patch of Kubernetes.
type release struct {
	minor int
	patch string
}

// dir returns the folder of a module in the module cache, and downloads the module if it is not there.
func (r release) dir(module string) (string, error) {
	major := "v0"
	if module == "k8s.io/kubernetes" {
		major = "v1"
	}
	tmp, err := os.MkdirTemp("", "features-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "go.mod"), []byte("module features\n"), 0o644); err != nil {
		return "", err
	}
	c := exec.Command("go", "mod", "download", "-json", fmt.Sprintf("%s@%s.%d.%s", module, major, r.minor, r.patch))
	c.Dir, c.Env, c.Stderr = tmp, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod"), os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", err
	}
	return got.Dir, nil
}

func main() {
	log.SetFlags(0)
	if err := writeGates("gates.go"); err != nil {
		log.Fatal(err)
	}
	if err := writeAPIs("apis.go"); err != nil {
		log.Fatal(err)
	}
}
