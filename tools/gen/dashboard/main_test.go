package main

import (
	"bytes"
	"os"
	"testing"
)

// TestCurrent checks that the dashboard equals the output of its source.
func TestCurrent(t *testing.T) {
	got, err := os.ReadFile("../../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, dashboard()) {
		t.Errorf("%s is out of date: run go run ./tools/gen/dashboard", file)
	}
}
