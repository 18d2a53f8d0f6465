package tidemarktest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// leakGrace is how long clients may take to close their watches at the end of a test.
	leakGrace = 5 * time.Second
	// leakPoll is how often the watches are counted in that time.
	leakPoll = 20 * time.Millisecond
)

// checkLeaks fails the test if its clients still have watches open: a controller that the test has started runs on,
// and its requests fail as soon as the cluster is deleted. It logs the objects that wait for their finalizers.
// It fails the test, too, and returns false, if the server cannot be reached.
func (e *Env) checkLeaks(t TB) (reached bool) {
	t.Helper()
	watches, err := e.watchesLeft()
	if closed, ok := err.(*StatusError); ok && closed.Code == 404 {
		return true // by the test
	} else if err != nil && !ok {
		t.Errorf("tidemarktest: the server cannot be reached at the end of the test: %v. Does the test close it before its cleanups run, as with defer? Close it in t.Cleanup, which comes before Fork", err)
		return false
	}
	if err == nil && len(watches) > 0 {
		t.Errorf("tidemarktest: the test has ended, and its clients still have watches open in the world %s (%d, after %v). Stop what the test has started:\n%s", e.Name(), len(watches), leakGrace, strings.Join(watches, "\n"))
	}
	var waiting []string
	if err == nil {
		waiting, err = e.waitingForFinalizers()
	}
	if err != nil {
		t.Logf("tidemarktest: the test was not checked for objects that wait for their finalizers: %v", err)
	}
	if len(waiting) > 0 {
		t.Logf("tidemarktest: the test leaves objects that are being deleted and wait for their finalizers:\n%s", strings.Join(waiting, "\n"))
	}
	return true
}

// watchesLeft waits until no watch is open, at most for the grace, and returns those that are, a line each. It counts the
// grace in looks: while the process waits for a CPU, its clients close nothing.
func (e *Env) watchesLeft() ([]string, error) {
	ctx, cancel := callContext()
	defer cancel()
	var watches []request
	for looks := leakGrace / leakPoll; ; looks-- {
		var all struct{ Watches []request } // a new one: json.Unmarshal keeps the fields of old elements
		if err := e.session.control.call(ctx, "GET", worldPath(e.world.Name, "watches"), nil, &all); err != nil {
			return nil, err
		}
		if watches = all.Watches; len(watches) == 0 || looks == 0 {
			break
		}
		time.Sleep(leakPoll)
	}
	var lines []string
	for _, w := range watches {
		lines = append(lines, fmt.Sprintf("  %s by %s", &w, w.UserAgent))
	}
	slices.Sort(lines)
	return lines, nil
}

// waitingForFinalizers returns the objects that the test has changed and that are being deleted and have finalizers,
// a line each.
func (e *Env) waitingForFinalizers() ([]string, error) {
	ctx, cancel := callContext()
	defer cancel()
	changes, err := e.history(ctx, e.world.Revision, 0)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, o := range touchedBy(changes) {
		var object struct {
			Metadata struct {
				DeletionTimestamp string
				Finalizers        []string
			}
		}
		if o.after == nil || json.Unmarshal(o.after, &object) != nil || object.Metadata.DeletionTimestamp == "" || len(object.Metadata.Finalizers) == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s %s: %s", o.collection, o.key, strings.Join(object.Metadata.Finalizers, ", ")))
	}
	slices.Sort(lines)
	return lines, nil
}
