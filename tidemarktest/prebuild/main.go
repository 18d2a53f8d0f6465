// Command prebuild builds the API server that the tests of a module use, before the tests. It shows its progress and prints
// the path of the program, which later tests find by themselves:
//
//	go run github.com/tidemark-dev/tidemark/tidemarktest/prebuild
package main

import (
	"fmt"
	"os"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

func main() {
	path, err := tidemarktest.Program()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
