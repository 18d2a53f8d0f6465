package features

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Change is a difference of two versions.
type Change struct {
	// Sign is '+' for an addition of the later version, '-' for a removal, '~' for another state.
	Sign byte
	// Of is "kind", "field" or "gate".
	Of string
	// Name is the kind with its group and version, the field with its version and type, or the gate.
	Name string
	// Detail has the feature gates and the default of a kind or a field, or the stage and the default of a gate.
	Detail string
}

// Diff returns what changes for clients of a cluster from one profile to another: kinds, fields of stable versions with
// their defaults, and gates, in this order and sorted by name.
func Diff(from, to *Profile) []Change {
	all := diffAPIs("kind", kinds, from, to)
	all = append(all, diffAPIs("field", fields, from, to)...)
	return append(all, diffGates(from, to)...)
}

// has reports whether a version has a kind or a field, whatever its gates.
func (p *Profile) has(a *API) bool {
	return int(a.Since) <= p.Emulated && (a.Until == 0 || p.Emulated <= int(a.Until))
}

func diffAPIs(of string, table []API, from, to *Profile) (all []Change) {
	for i := range table {
		a := &table[i]
		c := Change{Of: of, Name: a.Version + " " + a.Name}
		had, has := from.has(a), to.has(a)
		was, is := from.missing(a) == "", to.missing(a) == ""
		switch {
		case has && !had:
			c.Sign, c.Detail = '+', a.state(to)
		case had && !has:
			c.Sign, c.Detail = '-', ""
		case had && has && was != is:
			c.Sign, c.Detail = '~', a.state(from)+" -> "+a.state(to)
		default:
			continue
		}
		if a.Default != "" && has && is {
			c.Detail = strings.TrimPrefix(c.Detail+", default "+a.Default, ", ")
		}
		all = append(all, c)
	}
	return all
}

// state says whether a kind or a field can be used.
func (a *API) state(p *Profile) string {
	asked := ""
	if strings.Contains(a.Version, "alpha") || strings.Contains(a.Version, "beta") {
		asked = "served if asked for"
	}
	gate := ""
	switch off := p.missing(a); {
	case off != "":
		gate = off + " is off"
	case a.Gates != "":
		gate = strings.ReplaceAll(a.Gates, ",", ", ") + " is on"
	}
	if asked != "" && gate != "" {
		asked += ", "
	}
	return asked + gate
}

func diffGates(from, to *Profile) (all []Change) {
	for i := range gates {
		g := &gates[i]
		was, is := g.state(from), g.state(to)
		switch {
		case was == is || g.early || g.name == allAlpha || g.name == allBeta:
		case was == "":
			all = append(all, Change{'+', "gate", g.name, is})
		case is == "":
			all = append(all, Change{'-', "gate", g.name, was})
		default:
			all = append(all, Change{'~', "gate", g.name, was + " -> " + is})
		}
	}
	return all
}

// state describes a gate in a version, empty if the version does not have it.
func (g *gate) state(p *Profile) string {
	s := g.at(p.Versions)
	if s.Stage == Unknown || g.until != 0 && p.Emulated > int(g.until) {
		return ""
	}
	text := cmp.Or(strings.ToLower(s.Stage.String()), "stable") + ", off"
	if s.On {
		text = strings.TrimSuffix(text, "off") + "on"
	}
	if s.Locked {
		text += ", locked"
	}
	if i := slices.IndexFunc(g.specs, func(s Spec) bool {
		return int(s.Since) == p.Emulated && int(s.Compat) > p.MinCompatible && s.Stage == g.at(p.Versions).Stage
	}); i >= 0 {
		text += fmt.Sprintf(" (on with --min-compatibility-version=1.%d)", g.specs[i].Compat)
	}
	return text
}
