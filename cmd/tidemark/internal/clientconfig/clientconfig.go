// Package clientconfig finds the kubeconfig of the commands that are clients of a server.
package clientconfig

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Usage is the help of the flag --kubeconfig.
const Usage = "kubeconfig of the server (default: the one that kubectl uses, otherwise that of tidemark serve in its default data directory)"

// Load finds the kubeconfig as kubectl does. Empty: the path is that of $KUBECONFIG or of ~/.kube/config, or else that of a
// server that has the default data directory; the context is the current one.
func Load(path, context string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	if path == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if _, err := os.Stat(clientcmd.RecommendedHomeFile); errors.Is(err, os.ErrNotExist) {
			if home, err := DataHome(os.Getenv, os.UserHomeDir); err == nil {
				rules.Precedence = append(rules.Precedence, filepath.Join(home, "tidemark", "kubeconfig"))
			}
		}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
}

// REST reads the kubeconfig.
func REST(loaded clientcmd.ClientConfig) (*rest.Config, error) {
	config, err := loaded.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no kubeconfig, or none with a cluster: name one with --kubeconfig or in $KUBECONFIG; that of tidemark serve is the file kubeconfig in its data directory")
	}
	return config, err
}

// DataHome returns the directory for the user's data. The default data directory is tidemark in it.
func DataHome(getenv func(string) string, home func() (string, error)) (string, error) {
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // the specification ignores relative paths
		return dir, nil
	}
	if dir := getenv("LocalAppData"); runtime.GOOS == "windows" && dir != "" {
		return dir, nil
	}
	dir, err := home()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, ".local", "share"), nil
}
