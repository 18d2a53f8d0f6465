package http2

import (
	"time"

	h2 "golang.org/x/net/http2"
)

const (
	// controlBurst is how many control frames a client may send at once, and controlRate how
	// many per second after that. Normal clients stay far below both. Ten thousand control
	// frames cost some milliseconds.
	controlBurst = 10_000
	controlRate  = 1_000
	// settingsCost is how many control frames SETTINGS count as: it may wake the handlers of
	// all streams.
	settingsCost = 10
	// minWindowIncrement is the smallest WINDOW_UPDATE that does not count as a control frame.
	// Smaller ones would cause a DATA frame for each few bytes.
	minWindowIncrement = 32
)

// controlLimiter limits control frames that carry no request or cancel one: PING,
// SETTINGS, PRIORITY, RST_STREAM, unknown ones, DATA without data, small window
// increments, and frames that cause a reset of their stream. Beyond the limit
// the connection is closed. The zero value is ready.
type controlLimiter struct {
	until time.Time // when the frames so far would have arrived at controlRate
}

// add counts frames. The error closes the connection.
func (l *controlLimiter) add(frames int) error {
	const each, most = time.Second / controlRate, controlBurst * time.Second / controlRate
	now := time.Now()
	if l.until.Before(now) {
		l.until = now
	}
	if l.until = l.until.Add(time.Duration(frames) * each); l.until.Sub(now) > most {
		return h2.ConnectionError(h2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
