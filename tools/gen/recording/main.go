// Command recording runs the commands below in a shell, with a server of the source tree, and
// writes docs/recording.svg: the output of the terminal as an animation. It needs bash and kubectl.
//
//	go run ./tools/gen/recording
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const file = "docs/recording.svg"

// steps are the commands, in the order in which they run. They share a shell.
var steps = []step{
	{command: "tidemark serve 2>serve.log &", until: "Ready in"},
	{command: "export KUBECONFIG=~/.local/share/tidemark/kubeconfig"},
	{command: "kubectl create deployment web --image=nginx"},
	{command: "kubectl get deployments"},
	{command: "# A fork is a copy of the whole state, made in a millisecond, to try changes on:"},
	{command: "tidemark fork --name=try"},
	{command: "kubectl --kubeconfig=try.kubeconfig delete deployment web"},
	{command: "kubectl get deployments   # the server still has it"},
	{command: "# A mistake? Every revision of the last hour can be read, and forked:"},
	{command: "revision=$(kubectl get deployment web -o jsonpath={.metadata.resourceVersion})"},
	{command: "kubectl delete deployment web"},
	{command: "tidemark fork --name=before --at=$revision"},
	{command: "kubectl --kubeconfig=before.kubeconfig get deployments"},
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	home, err := os.MkdirTemp("", "recording-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	bin := filepath.Join(home, "bin")
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/tidemark")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building tidemark: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	shown, err := record(ctx, steps, home, bin)
	if err != nil {
		return err
	}
	return os.WriteFile(file, animate(shown), 0o644) //nolint:gosec // it has no secrets
}
