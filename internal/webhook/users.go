package webhook

import (
	"fmt"
	"net"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// userAgent is that of kube-apiserver.
const userAgent = "kube-apiserver-admission"

// Users are the credentials of a kubeconfig for webhooks. The name of each of its users is the host
// of a webhook: "name.namespace.svc" or "name.namespace.svc:port" of a Service, the host of a URL,
// "*.domain" for all hosts of a domain, or "*" for all. The user of the current context is for all
// others. Nil has no credentials.
type Users struct{ file *clientcmdapi.Config }

// ReadUsers reads a kubeconfig. Relative paths in it begin at its directory.
func ReadUsers(kubeconfig string) (*Users, error) {
	file, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}).Load()
	if err != nil {
		return nil, err
	}
	return &Users{file}, nil
}

// config returns the settings of a client of a host ("host:port"), with its credentials.
func (u *Users) config(target string) (*rest.Config, error) {
	c := &rest.Config{UserAgent: userAgent}
	user := u.of(target)
	if user == nil {
		return c, nil
	}
	if user.AuthProvider != nil {
		return nil, fmt.Errorf("auth provider not supported")
	}
	c.BearerToken, c.BearerTokenFile = user.Token, user.TokenFile
	if c.BearerToken == "" && c.BearerTokenFile != "" {
		token, err := os.ReadFile(c.BearerTokenFile)
		if err != nil {
			return nil, err
		}
		c.BearerToken = string(token)
	}
	if user.Impersonate != "" {
		c.Impersonate = rest.ImpersonationConfig{
			UserName: user.Impersonate, UID: user.ImpersonateUID, Groups: user.ImpersonateGroups, Extra: user.ImpersonateUserExtra,
		}
	}
	if user.ClientCertificate != "" || len(user.ClientCertificateData) > 0 {
		c.CertFile, c.CertData = user.ClientCertificate, user.ClientCertificateData
		c.KeyFile, c.KeyData = user.ClientKey, user.ClientKeyData
	}
	c.Username, c.Password = user.Username, user.Password
	if user.Exec != nil {
		c.ExecProvider = user.Exec.DeepCopy()
	}
	return c, nil
}

// of returns the user of a host, nil for none.
func (u *Users) of(target string) *clientcmdapi.AuthInfo {
	if u == nil {
		return nil
	}
	names := hostPatterns(target)
	if host, port, err := net.SplitHostPort(target); err == nil && port == "443" {
		names = append(names, hostPatterns(host)...)
	}
	for _, name := range append(names, "*") {
		if user := u.file.AuthInfos[name]; user != nil {
			return user
		}
	}
	if c := u.file.Contexts[u.file.CurrentContext]; c != nil && c.AuthInfo != "" {
		return u.file.AuthInfos[c.AuthInfo]
	}
	return nil
}

// hostPatterns returns the names that match a host, the most exact one first.
func hostPatterns(host string) []string {
	all := []string{host}
	for rest := host; ; {
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			return all
		}
		all, rest = append(all, "*."+after), after
	}
}
