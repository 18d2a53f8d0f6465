// Package kubeconfig writes the kubeconfig file of a server. It never replaces a file that
// another program wrote.
package kubeconfig

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// Config is the content of a kubeconfig.
type Config struct {
	// Server is the URL.
	Server string
	// CA is the certificate to trust, as PEM.
	CA []byte
	// TLSServerName is the name that the server's certificate is checked against;
	// empty: the host of Server.
	TLSServerName string
	// User is the name of the user's entry; empty: the administrator.
	User string
	// Token authenticates the user.
	Token string
	// Certificate and Key authenticate the user instead of Token, as PEM.
	Certificate, Key []byte
}

const (
	name = "tidemark"
	user = "tidemark-admin"

	// mark is the name of an extension that identifies files of this package. kubectl config
	// keeps it, unlike comments.
	mark = "tidemark.dev/kubeconfig"
)

// YAML returns the file: one cluster, one user, one context, with certificates inline. One with a client certificate is
// not a file that Write replaces.
func (c Config) YAML() []byte {
	var b bytes.Buffer
	if c.Certificate == nil {
		b.WriteString(`# Written by tidemark, which replaces it when its address or its credentials
# change. It lets its reader do everything: keep it to yourself.
`)
	} else {
		b.WriteString("# Written by tidemark. It lets its reader act as its user: keep it to yourself.\n")
	}
	fmt.Fprintf(&b, `apiVersion: v1
kind: Config
current-context: %[1]s
clusters:
- name: %[1]s
  cluster:
    server: %[2]q
    certificate-authority-data: %[3]s
`, name, c.Server, base64.StdEncoding.EncodeToString(c.CA))
	if c.TLSServerName != "" {
		fmt.Fprintf(&b, "    tls-server-name: %q\n", c.TLSServerName)
	}
	if c.Certificate == nil {
		fmt.Fprintf(&b, "    extensions:\n    - name: %s\n      extension: {}\n", mark)
	}
	fmt.Fprintf(&b, "users:\n- name: %q\n  user:\n", cmp.Or(c.User, user))
	if c.Certificate == nil {
		fmt.Fprintf(&b, "    token: %q\n", c.Token)
	} else {
		fmt.Fprintf(&b, "    client-certificate-data: %s\n    client-key-data: %s\n",
			base64.StdEncoding.EncodeToString(c.Certificate), base64.StdEncoding.EncodeToString(c.Key))
	}
	fmt.Fprintf(&b, `contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[2]q
preferences: {}
`, name, cmp.Or(c.User, user))
	return b.Bytes()
}

// ReadServer returns how the file that Write wrote reaches its server, without credentials. The error is a
// *ForeignError for a file of another program.
func ReadServer(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	f, why := parse(b)
	if why != "" {
		return Config{}, &ForeignError{path, why}
	}
	cluster := f.Clusters[0].Cluster
	return Config{Server: cluster.Server, CA: cluster.CA, TLSServerName: cluster.TLSServerName}, nil
}

// ForeignError is the error for a file that another program wrote.
type ForeignError struct {
	Path string
	// Why describes the content that shows this.
	Why string
}

// Error implements error.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s was not written by tidemark (%s) and is left alone: name another file, or remove this one", e.Path, e.Why)
}

// Write writes the kubeconfig to the path atomically, readable by the owner only. It creates
// missing directories. It replaces a file only if this package wrote it or it is empty;
// otherwise it returns a *ForeignError. A file that already leads to this server as this user
// is not changed, so that a namespace that was set in it stays.
func Write(path string, c Config) error {
	// Replace the target of a symbolic link.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(bytes.TrimSpace(old)) > 0:
		f, why := parse(old)
		if why != "" {
			return &ForeignError{path, why}
		}
		if f.leadsTo(c) && private(path) {
			return nil
		}
	}
	return atomicfile.Write(path, c.YAML(), 0o600)
}

// file has the parts of a kubeconfig that matter here.
type file struct {
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server        string `json:"server"`
			CA            []byte `json:"certificate-authority-data"`
			TLSServerName string `json:"tls-server-name"`
			Extensions    []struct {
				Name string `json:"name"`
			} `json:"extensions"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User struct {
			Token string `json:"token"`
		} `json:"user"`
	} `json:"users"`
	Contexts []struct {
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
}

// parse reads a file. why says why it must not be replaced: another program wrote it, or it has
// additions that would be lost. It is empty for a file of this package.
func parse(b []byte) (f file, why string) {
	if err := yaml.Unmarshal(b, &f); err != nil {
		return f, "it is no kubeconfig"
	}
	if len(f.Clusters) == 0 {
		return f, "it names no cluster"
	}
	for _, c := range f.Clusters {
		ours := c.Name == name && len(c.Cluster.Extensions) == 1 && c.Cluster.Extensions[0].Name == mark
		if !ours {
			return f, fmt.Sprintf("it holds the cluster %q", c.Name)
		}
	}
	for _, u := range f.Users {
		if u.Name != user {
			return f, fmt.Sprintf("it holds the user %q", u.Name)
		}
	}
	for _, c := range f.Contexts {
		if c.Context.Cluster != name || c.Context.User != user {
			return f, fmt.Sprintf("it holds a context of the user %q", c.Context.User)
		}
	}
	return f, ""
}

// leadsTo reports whether a client with the file reaches the server as the same user.
func (f file) leadsTo(c Config) bool {
	if len(f.Clusters) != 1 || len(f.Users) != 1 || len(f.Contexts) == 0 {
		return false
	}
	cluster := f.Clusters[0].Cluster
	return cluster.Server == c.Server && bytes.Equal(cluster.CA, c.CA) && cluster.TLSServerName == c.TLSServerName &&
		f.Users[0].User.Token == c.Token
}

// private reports whether only the owner can read the file.
func private(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o077 == 0
}
