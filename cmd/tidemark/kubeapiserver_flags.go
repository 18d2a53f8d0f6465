package main

import (
	_ "embed"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// apiServerTable lists the flags of kube-apiserver: name, type, default, and the value without one
// if there is such, separated by tabs.
//
//go:embed kube-apiserver-flags.tsv
var apiServerTable string

// apiServerFlag is a row of apiServerTable.
type apiServerFlag struct {
	name, kind, value string
	alone             string // the value of the flag without a value; empty: it needs one
}

func apiServerFlags() []apiServerFlag {
	var rows []apiServerFlag
	for line := range strings.Lines(apiServerTable) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		column := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), "", "", "")
		rows = append(rows, apiServerFlag{name: column[0], kind: column[1], value: column[2], alone: column[3]})
	}
	return rows
}

// ignoredFlag is the value of a flag without effect. It accepts the values of kube-apiserver, by
// type.
type ignoredFlag struct {
	row  apiServerFlag
	last string
}

// String implements pflag.Value.
func (i *ignoredFlag) String() string { return i.last }

// Set implements pflag.Value.
func (i *ignoredFlag) Set(text string) (err error) {
	switch i.row.kind {
	case "bool":
		_, err = strconv.ParseBool(text)
	case "int", "int32", "int64":
		_, err = strconv.ParseInt(text, 0, 64)
	case "float", "float32", "float64":
		_, err = strconv.ParseFloat(text, 64)
	case "duration":
		_, err = time.ParseDuration(text)
	case "ip":
		if net.ParseIP(strings.TrimSpace(text)) == nil {
			err = fmt.Errorf("failed to parse IP: %q", text)
		}
	}
	i.last = text
	return err
}

// Type implements pflag.Value.
func (i *ignoredFlag) Type() string { return i.row.kind }

// anyGates is the value of --feature-gates of kube-apiserver, which may name the component.
type anyGates struct{ gates }

// Set implements pflag.Value.
func (g *anyGates) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if err := g.gates.Set(strings.TrimPrefix(strings.TrimSpace(part), "kube:")); err != nil {
			return err
		}
	}
	return nil
}
