package tidemarktest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// deadlineMargin is how long before go test ends the process a test reports what it is waiting for: a fifth of its time, at
// most.
const deadlineMargin = 5 * time.Second

// deadline returns when go test ends the process of the test, if that is known.
func deadline(t TB) (end time.Time, ok bool) {
	limited, has := t.(interface{ Deadline() (time.Time, bool) })
	if !has {
		return end, false
	}
	defer func() {
		if recover() != nil { // in a bubble of testing/synctest, whose clock is another one
			end, ok = time.Time{}, false
		}
	}()
	return limited.Deadline()
}

// watchDeadline reports the state of the cluster shortly before go test ends the process, since a test that runs into its
// time limit has no cleanups and prints no log.
func (e *Env) watchDeadline(t TB, report func(text string)) {
	end, ok := deadline(t)
	if !ok {
		return
	}
	left := time.Until(end)
	margin := max(0, min(deadlineMargin, left/5))
	timer := time.AfterFunc(left-margin, func() {
		report(fmt.Sprintf("tidemarktest: %s is about to exceed the time limit of go test.%s\n", t.Name(), e.evidence(t, margin/2)))
	})
	t.Cleanup(func() { timer.Stop() })
}

// evidence describes a cluster whose test hangs: the unfinished work of the server, the objects
// that wait for their finalizers, and the last changes; or the dump, if TIDEMARK_DUMP names a
// directory. The server has so long to finish its work.
func (e *Env) evidence(t TB, limit time.Duration) string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), limit+settleMargin)
	if _, err := e.settleOnce(ctx, 0); err != nil {
		fmt.Fprintf(&b, "\nWithin %v: %v", limit.Round(time.Millisecond), err)
	}
	cancel()
	if waiting, err := e.waitingForFinalizers(); err == nil && len(waiting) > 0 {
		b.WriteString("\nThese objects are being deleted and wait for their finalizers:\n" + strings.Join(waiting, "\n"))
	}
	if root := os.Getenv("TIDEMARK_DUMP"); root != "" {
		dir := e.dumpDir(t, root)
		if revision, err := e.dumpTo(dir); err != nil {
			fmt.Fprintf(&b, "\nThe dump: %v", err)
		} else {
			fmt.Fprintf(&b, "\nThe state and the history are in %s; to open the state: %s", dir, e.session.openCommand(dir, revision))
		}
		return b.String()
	}
	if lines, err := e.lastChanges(); err != nil {
		fmt.Fprintf(&b, "\nThe history: %v", err)
	} else if len(lines) > 0 {
		b.WriteString("\nThe last changes (TIDEMARK_DUMP=DIR keeps all of them, with the objects):\n" + strings.Join(lines, "\n"))
	}
	return b.String()
}
