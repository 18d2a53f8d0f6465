package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const deployed = "../deploy"

// TestDeployKubernetes applies the manifests to a server, as to the cluster that Tidemark runs in, and creates the
// Pod of the StatefulSet: it satisfies the Pod Security Standard of its namespace.
func TestDeployKubernetes(t *testing.T) {
	tier.Full(t)
	k := newKubectl(t, servers.Start(t))
	out := k.want("", []string{"apply", "--validate=strict", "-k", filepath.Join(deployed, "kubernetes")}, "statefulset.apps/tidemark created", "service/tidemark created", "networkpolicy.networking.k8s.io/tidemark created")
	if strings.Contains(out, "Warning") {
		t.Errorf("kubectl apply warns:\n%s", out)
	}
	set := k.want("", []string{"get", "-n", "tidemark", "statefulset", "tidemark", "-o", "json"})
	pod := servers.FirstPod(t, []byte(set), "")
	k.want(string(pod), []string{"create", "-f", "-"}, "pod/tidemark-0 created")
}

// TestDeployedConfigurations checks the configurations of the packages and of the manifests with --dry-run.
func TestDeployedConfigurations(t *testing.T) {
	tier.Full(t)
	users := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(users, []byte("secret,admin,admin,\"system:masters\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"systemd/tidemark.yaml", "kubernetes/tidemark.yaml"} {
		cmd := exec.CommandContext(t.Context(), testprogram.Path(t), "serve", "--dry-run", "--config="+filepath.Join(deployed, file))
		cmd.Env = append(os.Environ(), "TIDEMARK_TOKEN_AUTH_FILE="+users)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "The configuration is valid.") {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// TestImageTryUsage checks the usage message of deploy/image/try.
func TestImageTryUsage(t *testing.T) {
	for want, arguments := range map[string][]string{
		"want one argument: the archive of a release, or the program": nil,
		"there is no file nothere":                                    {"nothere"},
	} {
		out, err := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(deployed, "image", "try")}, arguments...)...).CombinedOutput()
		if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) || failed.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v: %q, want %q", arguments, err, out, want)
		}
	}
}

// TestGitHubAction runs the installation of the action on the files of a release. Its checksums also have files that the
// action does not need: the list of contents of an archive has the archive's name as a prefix.
func TestGitHubAction(t *testing.T) {
	tier.Full(t)
	text, err := os.ReadFile(filepath.Join(deployed, "github-action/action.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(text), "      run: |\n")
	script, _, _ = strings.Cut(script, "    - name: ")
	dir := t.TempDir()
	make := `set -e
mkdir files bin
echo '#!/bin/sh' >tidemark
tar -czf files/tidemark_1.2.3_linux_amd64.tar.gz tidemark
cd files
sha256sum * >checksums.txt
printf '%064d  tidemark_1.2.3_linux_amd64.tar.gz.sbom.json\n' 0 >>checksums.txt
cat >../bin/curl <<'END'
#!/bin/sh
cp "$FILES/${2##*/}" .
END
chmod +x ../bin/curl`
	for _, step := range []string{make, script} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", step)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "FILES="+filepath.Join(dir, "files"), "RUNNER_TEMP="+filepath.Join(dir, "temp"),
			"GITHUB_PATH="+filepath.Join(dir, "path"), "RUNNER_OS=Linux", "RUNNER_ARCH=X64", "VERSION=1.2.3", "URL=https://example.com/releases")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "temp/tidemark/tidemark")); err != nil {
		t.Error(err)
	}
}
