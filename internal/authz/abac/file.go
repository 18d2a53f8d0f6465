package abac

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

const group = "abac.authorization.kubernetes.io"

// Load reads a policy file. The error names the line that is wrong.
func Load(path string) (Policies, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(path, f)
}

// read reads policies. A line has 64 KiB at most.
func read(path string, r io.Reader) (Policies, error) {
	all := Policies{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		p, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("error reading policy file %s, line %d: %s: %w", path, n, lines.Bytes(), err)
		}
		all = append(all, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("error reading policy file %s: %w", path, err)
	}
	return all, nil
}

// parse reads a policy in either form.
func parse(line []byte) (Policy, error) {
	var head struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &head); err != nil {
		return Policy{}, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	switch {
	case head.APIVersion == "" && (head.Kind == "" || head.Kind == "Policy"), head.APIVersion == group+"/v0" && head.Kind == "Policy":
		return parseOld(line)
	case head.APIVersion == group+"/v1beta1" && head.Kind == "Policy":
		var sent struct {
			Spec Policy `json:"spec"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &sent); err != nil {
			return Policy{}, err
		}
		p := sent.Spec
		p.signedIn()
		return p, nil
	}
	kind := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	return Policy{}, fmt.Errorf("no kind %q is registered for version %q: want kind \"Policy\" of version %q", kind.Kind, kind.GroupVersion(), group+"/v1beta1")
}

// parseOld parses the form without a version. A missing field means "all", also for API groups, and
// a rule without user and group is for all authenticated users.
func parseOld(line []byte) (Policy, error) {
	var old struct {
		User      string `json:"user,omitempty"`
		Group     string `json:"group,omitempty"`
		Readonly  bool   `json:"readonly,omitempty"`
		Resource  string `json:"resource,omitempty"`
		Namespace string `json:"namespace,omitempty"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &old); err != nil {
		return Policy{}, err
	}
	p := Policy{User: old.User, Group: old.Group, Readonly: old.Readonly, Resource: old.Resource, Namespace: old.Namespace, APIGroup: "*"}
	if p.User == "" && p.Group == "" {
		p.Group = authn.Authenticated
	}
	if p.Namespace == "" && p.Resource == "" {
		p.NonResourcePath = "*"
	}
	if p.Namespace == "" {
		p.Namespace = "*"
	}
	if p.Resource == "" {
		p.Resource = "*"
	}
	p.signedIn()
	return p, nil
}

// signedIn replaces the user or group "*", which means all authenticated users, whatever the other
// field is.
func (p *Policy) signedIn() {
	if p.User == "*" || p.Group == "*" {
		p.User, p.Group = "", authn.Authenticated
	}
}
