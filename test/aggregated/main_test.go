package aggregated

import (
	"fmt"
	"os"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/sample-apiserver/pkg/cmd/server"
)

// asSample makes the test's program run sample-apiserver with its arguments.
const asSample = "TIDEMARK_TEST_SAMPLE_APISERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asSample) == "" {
		os.Exit(m.Run())
	}
	ctx := genericapiserver.SetupSignalContext()
	command := server.NewCommandStartWardleServer(ctx, server.NewWardleServerOptions(os.Stdout, os.Stderr), false)
	code := cli.Run(command)
	fmt.Fprintln(os.Stderr, "sample-apiserver ended with", code)
	os.Exit(code)
}
