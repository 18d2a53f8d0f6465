package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// The profiles below profilingPath are those of package net/http/pprof. That package is not imported: it adds its
// handlers to http.DefaultServeMux, which a program that embeds the server may serve without authentication.

const (
	profilingPath = "/debug/pprof"

	// defaultProfileSeconds and defaultTraceSeconds are those of net/http/pprof.
	defaultProfileSeconds, defaultTraceSeconds = 30, 1
	// maxProfileSeconds bounds the parameter seconds. The request has its usual time.
	maxProfileSeconds = 50
	// maxProfileBytes bounds a profile, which is held in memory until it is sent.
	maxProfileBytes = 64 << 20
)

// profiling serves the list of profiles, or one of them.
func (q *request) profiling(name string) error {
	if q.r.Method != http.MethodGet {
		return errNoMethod()
	}
	switch name {
	case "", "/":
		return q.profiles()
	case "/profile":
		return q.recorded("profile", defaultProfileSeconds, func(b *bounded) error { return pprof.StartCPUProfile(b) }, pprof.StopCPUProfile)
	case "/trace":
		return q.recorded("trace", defaultTraceSeconds, func(b *bounded) error { return trace.Start(b) }, trace.Stop)
	}
	p := pprof.Lookup(name[1:])
	if p == nil {
		return errNoPage
	}
	return q.profile(p)
}

// profiles sends the list of profiles. Its path has a slash at the end, so that its links lead to them.
func (q *request) profiles() error {
	if q.r.URL.Path == profilingPath {
		q.header()["Location"] = []string{q.h.c.Prefix + q.prefix + profilingPath + "/"}
		return q.send(http.StatusFound, plainText, nil)
	}
	var b bytes.Buffer
	b.WriteString("<!DOCTYPE html>\n<html><head><title>" + profilingPath + "/</title></head><body>\n<table>\n<tr><th>Profile</th><th>Count</th></tr>\n")
	all := pprof.Profiles()
	slices.SortFunc(all, func(a, b *pprof.Profile) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, p := range all {
		name := html.EscapeString(p.Name())
		fmt.Fprintf(&b, "<tr><td><a href=%q>%s</a></td><td>%d</td></tr>\n", name+"?debug=1", name, p.Count())
	}
	fmt.Fprintf(&b, "<tr><td><a href=\"profile?seconds=%d\">profile</a></td><td></td></tr>\n<tr><td><a href=\"trace?seconds=%d\">trace</a></td><td></td></tr>\n</table>\n</body></html>\n",
		defaultProfileSeconds, defaultTraceSeconds)
	return q.send(http.StatusOK, htmlType, b.Bytes())
}

// profile sends a profile as it is now.
func (q *request) profile(p *pprof.Profile) error {
	v := q.query()
	if v.Has("seconds") {
		return apierrors.NewBadRequest("the parameter seconds is for profile and trace: this profile shows the present")
	}
	if p.Name() == "heap" && v.Get("gc") == "1" {
		runtime.GC()
	}
	debug, err := strconv.Atoi(cmp.Or(v.Get("debug"), "0"))
	if err != nil || debug < 0 || debug > 2 {
		return apierrors.NewBadRequest("the parameter debug is not 0, 1 or 2")
	}
	b := &bounded{}
	if err := p.WriteTo(b, debug); err != nil {
		return err
	}
	if debug > 0 {
		return q.send(http.StatusOK, plainText, b.Bytes())
	}
	return q.download(p.Name(), b)
}

// recorded records for the seconds of the request, without seats, and sends the result. Only one such profile can be
// recorded at a time in a process.
func (q *request) recorded(name string, seconds int, start func(*bounded) error, stop func()) error {
	if text := q.query().Get("seconds"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > maxProfileSeconds {
			return apierrors.NewBadRequest(fmt.Sprintf("the parameter seconds is not a number from 1 to %d", maxProfileSeconds))
		}
	}
	b := &bounded{}
	if err := start(b); err != nil {
		return refusal(http.StatusConflict, metav1.StatusReasonConflict, "the "+name+" cannot be recorded: "+err.Error(), nil)
	}
	stopped := false
	defer func() {
		if !stopped {
			stop()
		}
	}()
	ctx := q.context()
	err := fairness.Wait(ctx, 0, func() error { return sleep(ctx, time.Duration(seconds)*time.Second) })
	stopped = true
	stop() // it returns when everything is written
	if err != nil {
		return err
	}
	return q.download(name, b)
}

// sleep waits, and returns early with an error if the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// download sends a profile as a file.
func (q *request) download(name string, b *bounded) error {
	if b.full {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the profile has more than %d bytes: ask for fewer seconds", maxProfileBytes))
	}
	q.header()["Content-Disposition"] = []string{`attachment; filename="` + name + `"`}
	return q.send(http.StatusOK, octetStream, b.Bytes())
}

// bounded is a buffer that drops bytes beyond maxProfileBytes.
type bounded struct {
	bytes.Buffer
	full bool
}

// Write implements io.Writer. It returns no error: the runtime would go on recording.
func (b *bounded) Write(p []byte) (int, error) {
	if b.full = b.full || b.Len()+len(p) > maxProfileBytes; b.full {
		return len(p), nil
	}
	return b.Buffer.Write(p)
}
