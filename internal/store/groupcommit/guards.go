package groupcommit

import (
	"maps"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// guards knows at which revision each name was claimed last. committer.mu guards it.
type guards struct {
	claimed map[string]store.Revision
	// floor is the newest claim of a name that is not in the map any more.
	floor store.Revision
}

// mostGuards bounds the names in memory, apart from those of transactions that are not
// published.
const mostGuards = 8192

func (g *guards) last(name string) store.Revision {
	if r, ok := g.claimed[name]; ok {
		return r
	}
	return g.floor
}

func (g *guards) claim(all []store.Guard, at, published store.Revision) {
	if len(g.claimed) >= mostGuards && published > g.floor { // otherwise there is nothing new to forget
		g.forget(published)
	}
	for i := range all {
		if !all[i].Claim {
			continue
		}
		if g.claimed == nil {
			g.claimed = map[string]store.Revision{}
		}
		g.claimed[all[i].Name] = at
	}
}

// forget drops the names that were claimed by published transactions.
func (g *guards) forget(published store.Revision) {
	maps.DeleteFunc(g.claimed, func(_ string, at store.Revision) bool { return at <= published })
	g.floor = max(g.floor, published)
}

// rebase takes the claims of transactions back that are not published.
func (g *guards) rebase(published store.Revision) {
	for name, at := range g.claimed {
		g.claimed[name] = min(at, published)
	}
}
