package world

import (
	"time"

	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// maxFollowerLag is the lag up to which a connected follower authorizes reads of older versions and watches by its copy.
// It never does so for other requests: see httpapi.Config.Behind.
const maxFollowerLag = 10 * time.Second

// behind reports whether the objects, if they are the copy of a follower, are too far behind; nil: they are no copy. While
// the server cannot be reached, reads of the copy go on.
func (p *process) behind() func() bool {
	followed := p.storage.Followed
	if followed == nil {
		return nil
	}
	return func() bool {
		lag := followed.Lag()
		return lag.Connected && lag.Time > maxFollowerLag
	}
}

// exposeFollower writes how far the server is behind the one that it follows.
func (p *process) exposeFollower(w *exposition.Writer) {
	if !p.follows() {
		return
	}
	lag, connected := p.storage.Followed.Lag(), 0.0
	if lag.Connected {
		connected = 1
	}
	w.Gauge("tidemark_follower_lag_seconds", lag.Time.Seconds(),
		"For how long the server has not had all changes of the server that it follows; 0 if it has them.")
	w.Gauge("tidemark_follower_lag_revisions", float64(lag.Revisions),
		"How many revisions the server that it follows is known to be ahead.")
	w.Gauge("tidemark_follower_connected", connected,
		"Whether the server that it follows sends its changes.")
}
