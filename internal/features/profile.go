package features

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/kubeversion"
)

var newest = kubeversion.Current.Minor

// Versions are minor versions of Kubernetes 1.
type Versions struct {
	// Emulated is the version whose kinds, fields and defaults of gates a server has.
	Emulated int
	// MinCompatible is the oldest version of the other servers of a cluster. The defaults of a few gates depend on it.
	MinCompatible int
}

// Profile is a version of Kubernetes with all gates resolved. There is one Profile for each choice in the process, so
// pointers to equal ones are equal, and values that are made of one can be kept by its pointer. It is immutable.
type Profile struct {
	Versions
	set map[string]bool
	on  []bool // by the index in gates
}

// Choice is the part of a Profile that a user sets.
type Choice struct {
	// Emulated is a version such as "1.36"; empty: the newest.
	Emulated string
	// MinCompatible is a version such as "1.35"; empty: the one before Emulated.
	MinCompatible string
	// Gates enables and disables gates by name; AllAlpha and AllBeta set those of a stage that are not named.
	Gates map[string]bool
}

var (
	mu       sync.Mutex
	profiles = map[string]*Profile{}
)

// Default returns the profile of the newest version with the defaults of all gates.
var Default = sync.OnceValue(func() *Profile {
	p, err := Resolve(Choice{})
	if err != nil {
		panic(err)
	}
	return p
})

// Resolve returns the profile of a choice. It returns all errors that kube-apiserver has for the versions and for the
// gates.
func Resolve(c Choice) (*Profile, error) {
	v, err := c.versions()
	if err != nil {
		return nil, err
	}
	key := fmt.Sprint(v, slices.Sorted(maps.Keys(c.Gates)), c.Gates) // maps print in the order of their keys
	mu.Lock()
	defer mu.Unlock()
	if p := profiles[key]; p != nil {
		return p, nil
	}
	p := &Profile{Versions: v, set: maps.Clone(c.Gates), on: make([]bool, len(gates))}
	if err := p.resolve(); err != nil {
		return nil, err
	}
	profiles[key] = p
	return p, nil
}

// At returns another version with the gates that were set in this one. Gates that the version does not have are left out.
func (p *Profile) At(minor string) (*Profile, error) {
	c := Choice{Emulated: minor}
	v, err := c.versions()
	if err != nil {
		return nil, err
	}
	if v.Emulated == p.Emulated {
		return p, nil
	}
	for name, on := range p.set {
		if i, ok := index(name); ok {
			if g := gates[i].at(v); g.Stage == Unknown || g.Locked {
				continue
			}
			if c.Gates == nil {
				c.Gates = map[string]bool{}
			}
			c.Gates[name] = on
		}
	}
	return Resolve(c)
}

// Newest returns the newest minor version: "1.37".
func Newest() string { return fmt.Sprintf("1.%d", newest) }

// floor is the oldest minor version that kube-apiserver emulates.
const floor = 34

func (c *Choice) versions() (v Versions, err error) {
	v.Emulated = newest
	if c.Emulated != "" {
		if v.Emulated, err = parse(c.Emulated); err != nil {
			return v, err
		}
	}
	if v.Emulated < Oldest || v.Emulated > newest {
		return v, fmt.Errorf("emulation version 1.%d is not between [1.%d, 1.%d]", v.Emulated, Oldest, newest)
	}
	lowest := min(floor, v.Emulated)
	v.MinCompatible = max(v.Emulated-1, lowest)
	if c.MinCompatible != "" {
		if v.MinCompatible, err = parse(c.MinCompatible); err != nil {
			return v, err
		}
	}
	if v.MinCompatible < lowest || v.MinCompatible > v.Emulated {
		return v, fmt.Errorf("minCompatibilityVersion version 1.%d is not between [1.%d, 1.%d]", v.MinCompatible, lowest, v.Emulated)
	}
	return v, nil
}

// parse returns 36 for "1.36", "v1.36" and "kube=1.36".
func parse(text string) (minor int, err error) {
	version := text
	if component, of, named := strings.Cut(text, "="); named {
		if component != "kube" {
			return 0, fmt.Errorf("component not registered: %s", component)
		}
		version = of
	}
	major, rest, ok := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if patch := strings.Contains(rest, "."); patch {
		return 0, fmt.Errorf("patch version not allowed, got: %s: want a version such as 1.%d", text, newest)
	}
	minor, err = strconv.Atoi(rest)
	if !ok || major != "1" || err != nil || minor < 0 {
		return 0, fmt.Errorf("could not parse %q as version: want a version such as 1.%d", version, newest)
	}
	return minor, nil
}

// resolve sets the values of all gates.
func (p *Profile) resolve() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.set)) {
		if err := CheckName(name); err != nil {
			return err
		}
		switch g, _ := p.Of(name); {
		case g.Locked && g.On != p.set[name]:
			errs = append(errs, fmt.Errorf("cannot set feature gate %s to %t, feature is locked to %t", name, p.set[name], g.On))
		case g.Stage == Unknown:
			errs = append(errs, fmt.Errorf("cannot set feature gate %s to %t, feature is PreAlpha at emulated version 1.%d, min compatibility version 1.%d", name, p.set[name], p.Emulated, p.MinCompatible))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for i := range gates {
		g := gates[i].at(p.Versions)
		p.on[i] = g.On
		if on, said := p.set[allAlpha]; said && g.Stage == Alpha {
			p.on[i] = on
		}
		if on, said := p.set[allBeta]; said && g.Stage == Beta {
			p.on[i] = on
		}
		if on, said := p.set[gates[i].name]; said {
			p.on[i] = on
		}
	}
	for i := range gates {
		if off := slices.DeleteFunc(slices.Clone(gates[i].needs), p.Enabled); p.on[i] && len(off) > 0 {
			errs = append(errs, fmt.Errorf("%s is enabled, but depends on features that are disabled: %v", gates[i].name, off))
		}
	}
	return errors.Join(errs...)
}

// Enabled reports whether a gate is enabled. A gate that the newest version of Kubernetes does not have is not.
func (p *Profile) Enabled(name string) bool {
	i, ok := index(name)
	return ok && p.on[i]
}

// WasSet reports whether a gate was set to true by name, and is not only on by default.
func (p *Profile) WasSet(name string) bool { return p.set[name] }
