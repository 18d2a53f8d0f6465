package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidemark-dev/tidemark/internal/features"
)

// byteSize is the value of a flag in bytes, written as a Kubernetes quantity.
type byteSize int64

// String implements pflag.Value.
func (b *byteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Set implements pflag.Value.
func (b *byteSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return errors.New("want a number of bytes, such as 134217728, 128Mi or 1Gi")
	}
	*b = byteSize(q.Value())
	return nil
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "bytes" }

// gates is the value of --feature-gates: Name=true,Other=false. Repeated flags add up.
type gates map[string]bool

// String implements pflag.Value.
func (g *gates) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*g)) {
		all = append(all, fmt.Sprintf("%s=%t", name, (*g)[name]))
	}
	return strings.Join(all, ",")
}

// Set implements pflag.Value.
func (g *gates) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, said := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		switch {
		case !said:
			return fmt.Errorf("%s lacks a value: want %s=true or %s=false", name, name, name)
		case err != nil:
			return fmt.Errorf("%s=%s: want true or false", name, value)
		}
		if err := features.CheckName(name); err != nil {
			return err
		}
		if *g == nil {
			*g = gates{}
		}
		(*g)[name] = on
	}
	return nil
}

// Type implements pflag.Value.
func (g *gates) Type() string { return "Name=bool,..." }

// gatesUsage returns the help of --feature-gates.
func gatesUsage() string {
	known := features.Known()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		all = append(all, fmt.Sprintf("%s=true|false (default=%t)", name, known[name]))
	}
	return "feature gates of kube-apiserver to turn on or off: " + strings.Join(all, ", ") + "; AllAlpha and AllBeta stand for all gates of a stage that are not named; gates of fields decide which fields are kept; others of Kubernetes have no effect, and a warning if they are changed"
}

// shellQuote quotes a word for a shell, if it needs quotes.
func shellQuote(word string) string {
	special := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("_@%+=:,./-", r)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
