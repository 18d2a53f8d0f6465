package control

import (
	"net/http"
	"time"
)

// maxAdvance limits how far one request moves a clock.
const maxAdvance = 10 * 365 * 24 * time.Hour

// clock is the time of a world.
type clock struct {
	Now time.Time `json:"now"`
}

func (h *handler) clock(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, clock{world.Now().UTC()})
	return nil
}

func (h *handler) advanceClock(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	var body struct {
		Milliseconds int64 `json:"milliseconds"`
	}
	if err := readJSON(w, r, maxBodyBytes, &body); err != nil {
		return err
	}
	if body.Milliseconds < 1 || body.Milliseconds > maxAdvance.Milliseconds() {
		return badRequest("milliseconds is %d, want 1 to %d, which are ten years", body.Milliseconds, maxAdvance.Milliseconds())
	}
	now, err := world.Advance(time.Duration(body.Milliseconds) * time.Millisecond)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, clock{now.UTC()})
	return nil
}
