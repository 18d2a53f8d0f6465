// Command prebuild builds the API server that the tests of a module use, before the tests. It shows its progress and prints
// the path of the program, which later tests find by themselves:
//
//	go run github.com/tidemark-dev/tidemark/tidemarktest/prebuild
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

const usage = `Prebuild builds the API server that the tests of the module in this directory use, if it is
not built yet, and prints the path of the program. Tests find it by themselves.

Usage:
  go run github.com/tidemark-dev/tidemark/tidemarktest/prebuild

It has no flags. With TIDEMARK_BINARY set, it builds nothing.
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "prebuild takes no argument: %q\n%s", flag.Arg(0), usage)
		os.Exit(2)
	}
	path, err := tidemarktest.Program()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
