package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
)

// The versions of the programs that error messages name.
const (
	kubernetesVersion = "v1.37.2"
	kwokVersion       = "v0.8.0"
)

// find returns the paths of the programs by component. The error names each one that is missing, and where it is published.
func (o *Options) find(withKwok bool) (map[string]string, error) {
	paths := map[string]string{Tidemark: o.Program}
	names := []string{ControllerManager, Scheduler}
	if withKwok {
		names = append(names, Kwok)
	}
	var missing []error
	for _, name := range names {
		path, err := o.look(name)
		if err != nil {
			missing = append(missing, fmt.Errorf("%s is not in %s: %s", name, o.places(), source(name, runtime.GOOS, runtime.GOARCH)))
			continue
		}
		paths[name] = path
	}
	return paths, errors.Join(missing...)
}

// look returns the absolute path of a program.
func (o *Options) look(name string) (string, error) {
	if o.BinDir != "" {
		if path, err := exec.LookPath(filepath.Join(o.BinDir, name)); err == nil {
			return filepath.Abs(path)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// places describes where programs are looked for.
func (o *Options) places() string {
	if o.BinDir == "" {
		return "PATH (name its directory with --bin-dir)"
	}
	return o.BinDir + " or PATH"
}

// source describes where a program is published, for a platform.
func source(name, system, arch string) string {
	switch {
	case name == Kwok:
		return "go install sigs.k8s.io/kwok/cmd/kwok@" + kwokVersion + ", or https://github.com/kubernetes-sigs/kwok/releases/tag/" + kwokVersion
	case system == "linux":
		return fmt.Sprintf("https://dl.k8s.io/%s/bin/linux/%s/%s", kubernetesVersion, arch, name)
	}
	return fmt.Sprintf("Kubernetes publishes it for Linux alone; in its source, of %s, run: make WHAT=cmd/%s", kubernetesVersion, name)
}
