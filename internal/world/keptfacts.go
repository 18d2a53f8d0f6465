package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/features"
)

// keptFacts are the contents of fork.json: docs/formats/data-directory.md.
type keptFacts struct {
	// Parent is the name of the parent; empty: a root world.
	Parent string `json:"parent,omitempty"`
	// Base is the resource version of the parent that the fork began with.
	Base uint64 `json:"base"`
	// BaseTime is when the change with the revision Base was made; zero: unknown, or an earlier version made the fork.
	BaseTime time.Time `json:"baseTime,omitzero"`
	Created  time.Time `json:"created"`
	// Controllers selects the controllers; null: those of the server.
	Controllers []string `json:"controllers"`
	// Past: see fork.past. Nil: an earlier version made the fork, and did not record it.
	Past *bool `json:"past"`
	// Tokens are the identities of the forks whose tokens are valid, satoken.Authority.Forks.
	Tokens []string `json:"tokens"`
	// Kubernetes is the version that was chosen, such as "1.36"; empty: that of the server.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Adapts: the fork began with a state of another version.
	Adapts bool `json:"adapts,omitempty"`
}

// chosen returns the minor version of a profile that is not that of the server, empty if it is.
func chosen(p, server *features.Profile) string {
	if p == server {
		return ""
	}
	return fmt.Sprintf("1.%d", p.Emulated)
}

// read reads a fork.json. After an error the facts are zero.
func (f *keptFacts) read(text []byte) error {
	err := json.Unmarshal(text, f)
	if err == nil && (f.Base == 0 || len(f.Tokens) == 0) { // without an identity, it would issue the tokens of the server
		err = errors.New("base or tokens is missing")
	}
	if err != nil {
		*f = keptFacts{}
	}
	return err
}

// past reports whether requests also require the current right on the server. It is true for a fork that an earlier version
// made, because it is not known whether that fork began with an old state.
func (f *keptFacts) past() bool { return f.Past == nil || *f.Past }
