package tidemarktest

// WatchDeadline is what Fork does, with the report.
func WatchDeadline(e *Env, t TB, report func(text string)) { e.watchDeadline(t, report) }
