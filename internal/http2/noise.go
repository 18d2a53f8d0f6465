package http2

import (
	"time"

	h2 "golang.org/x/net/http2"
)

const (
	// noiseBurst is how much a client may send at once of what asks for nothing, and
	// noiseRate how much in a second after that. Clients that cancel watches, ping and
	// grant windows stay below both by far; ten thousand such frames cost some
	// milliseconds.
	noiseBurst = 10_000
	noiseRate  = 1_000
	// settingsCost is what SETTINGS count: they may wake the handlers of all streams.
	settingsCost = 10
	// dribble is the smallest increment of a window that is not noise: each has a frame
	// sent.
	dribble = 32
)

// noise counts the frames of a client that ask for nothing, or undo what was asked for:
// PING, SETTINGS, PRIORITY, RST_STREAM, what is unknown, DATA without data, windows that
// open by a few bytes, and frames that are answered by a reset of their stream. A client
// that sends too many has to go. The zero value is ready.
type noise struct {
	until time.Time // when all of it would have come at noiseRate
}

// add counts n frames. The error ends the connection.
func (n *noise) add(frames int) error {
	const each, most = time.Second / noiseRate, noiseBurst * time.Second / noiseRate
	now := time.Now()
	if n.until.Before(now) {
		n.until = now
	}
	if n.until = n.until.Add(time.Duration(frames) * each); n.until.Sub(now) > most {
		return h2.ConnectionError(h2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
