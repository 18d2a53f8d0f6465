package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/fault"
)

func (h *handler) addFault(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	var rule fault.Rule
	if err := readJSON(w, r, maxBodyBytes, &rule); err != nil {
		return err
	}
	added, err := world.AddFault(rule)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, added)
	return nil
}

func (h *handler) faults(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"faults": world.Faults()})
	return nil
}

func (h *handler) removeFault(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	if err := world.RemoveFault(r.PathValue("fault")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *handler) clearFaults(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	world.ClearFaults()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// record starts a record of the requests to a world.
func (h *handler) record(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	world.RecordRequests()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// recorded returns the recorded requests.
func (h *handler) recorded(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	all, missed := world.RecordedRequests()
	if all == nil {
		all = []fault.Request{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"requests": all, "missed": missed})
	return nil
}

// watches returns the open watches.
func (h *handler) watches(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	all, err := world.Watches()
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"watches": all})
	return nil
}

const (
	defaultSettle = 30 * time.Second
	maxSettle     = 10 * time.Minute
)

// settle responds when the world has settled, and been quiet for as long as the client wants.
func (h *handler) settle(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	var body struct {
		TimeoutMilliseconds int64 `json:"timeoutMilliseconds"`
		QuietMilliseconds   int64 `json:"quietMilliseconds"`
	}
	if err := readJSON(w, r, maxBodyBytes, &body); err != nil {
		return err
	}
	most := maxSettle.Milliseconds()
	if n := body.TimeoutMilliseconds; n < 0 || n > most {
		return badRequest("timeoutMilliseconds %d: want 1 to %d, or 0 for %d", n, most, defaultSettle.Milliseconds())
	}
	if n := body.QuietMilliseconds; n < 0 || n > most {
		return badRequest("quietMilliseconds %d: want 0 to %d", n, most)
	}
	wait := cmp.Or(time.Duration(body.TimeoutMilliseconds)*time.Millisecond, defaultSettle)
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	settled, err := world.SettleFor(ctx, time.Duration(body.QuietMilliseconds)*time.Millisecond)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, settled)
	return nil
}

// faultResponse returns the response for an error of package fault, nil for others.
func faultResponse(err error) *apiError {
	switch {
	case errors.Is(err, fault.ErrInvalid):
		return &apiError{http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()}
	case errors.Is(err, fault.ErrNotFound):
		return &apiError{http.StatusNotFound, metav1.StatusReasonNotFound, err.Error()}
	case errors.Is(err, fault.ErrTooMany):
		return &apiError{http.StatusInsufficientStorage, "InsufficientStorage", fmt.Sprintf("%v: remove some", err)}
	}
	return nil
}
