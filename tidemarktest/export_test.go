package tidemarktest

import "time"

// Evidence is what a test reports before its deadline, if the server has so long to finish its work.
func Evidence(e *Env, t TB, limit time.Duration) string { return e.evidence(t, limit) }

// WatchDeadline does the same as Fork, with the report.
func WatchDeadline(e *Env, t TB, report func(text string)) { e.watchDeadline(t, report) }
