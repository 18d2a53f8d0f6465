package tidemarktest

// WatchDeadline does the same as Fork, with the report.
func WatchDeadline(e *Env, t TB, report func(text string)) { e.watchDeadline(t, report) }
