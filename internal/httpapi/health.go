package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/kubeversion"
)

// checks returns the checks of /healthz, /livez or /readyz, in order.
func (h *Handler) checks(path string) []Check {
	all := []Check{{Name: "ping", Probe: func() error { return nil }}}
	for _, c := range h.c.Checks {
		if c.Live || path == "/readyz" || c.Healthz && path == "/healthz" {
			all = append(all, c)
		}
	}
	if path == "/readyz" {
		all = append(all, Check{Name: "shutdown", Probe: func() error {
			if h.root.leaving.Load() || h.drained.Err() != nil {
				return errors.New("the server is shutting down")
			}
			return nil
		}})
	}
	return all
}

// health serves /healthz, /livez and /readyz, or one of their checks. The reason of a
// failure goes to the log only, because the response is public.
func (q *request) health(path string) error {
	kind, name, single := strings.Cut(path[1:], "/")
	checks := q.h.checks("/" + kind)
	if single {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			return errNoPage
		}
		checks = checks[i : i+1]
	}
	v := q.query()
	excluded := v["exclude"]
	var lines bytes.Buffer
	failed := false
	for _, c := range checks {
		if j := slices.Index(excluded, c.Name); j >= 0 && !single {
			excluded = slices.DeleteFunc(slices.Clone(excluded), func(s string) bool { return s == c.Name })
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		err := c.Probe()
		if !q.h.forked { // the metrics are those of the server
			q.h.metrics.healthchecks.done(healthcheck{c.Name, kind}, err == nil)
		}
		q.h.noteHealth(healthcheck{c.Name, kind}, err)
		if err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok", c.Name)
		if c.Note != nil {
			lines.WriteString(c.Note())
		}
		lines.WriteByte('\n')
	}
	return q.sayHealth(kind, &lines, excluded, failed, single)
}

// noteHealth logs that a check begins to fail, or passes again. Probes come every second, so it does not log each failure.
func (h *Handler) noteHealth(c healthcheck, err error) {
	if err == nil {
		if _, failed := h.failing.LoadAndDelete(c); failed {
			h.log().Info("health check passes again", "check", c.kind+"/"+c.name)
		}
		return
	}
	if _, failed := h.failing.LoadOrStore(c, true); !failed {
		h.log().Warn("health check failed", "check", c.kind+"/"+c.name, "err", err)
	}
}

// quotedNames returns names, sorted, quoted and with commas between them, as many as refusedStatusBytes have: clients without
// credentials send them, and the response is not counted in any budget.
func quotedNames(names []string) string {
	const most = refusedStatusBytes
	var b []byte
	for i, name := range slices.Sorted(slices.Values(names)) {
		if i > 0 {
			b = append(b, ',')
		}
		before := len(b)
		if b = strconv.AppendQuote(b, name[:min(len(name), most)]); len(b) > most {
			return string(b[:before]) + "..."
		}
	}
	return string(b)
}

func (q *request) sayHealth(kind string, lines *bytes.Buffer, unknown []string, failed, single bool) error {
	if len(unknown) > 0 && !single {
		fmt.Fprintf(lines, "warn: some health checks cannot be excluded: no matches for %s\n", quotedNames(unknown))
	}
	q.header()["X-Content-Type-Options"] = noSniff
	switch {
	case failed:
		fmt.Fprintf(lines, "%s check failed\n", kind)
		return q.send(http.StatusInternalServerError, plainText, lines.Bytes())
	case q.query().Has("verbose") && !single:
		fmt.Fprintf(lines, "%s check passed\n", kind)
		return q.send(http.StatusOK, plainText, lines.Bytes())
	}
	return q.send(http.StatusOK, plainText, []byte("ok"))
}

// versionDocument returns /version, which Helm and kubectl parse.
func versionDocument(c *Config) []byte {
	b, err := json.MarshalIndent(struct {
		Major          string `json:"major"`
		Minor          string `json:"minor"`
		EmulationMajor string `json:"emulationMajor"`
		EmulationMinor string `json:"emulationMinor"`
		MinMajor       string `json:"minCompatibilityMajor"`
		MinMinor       string `json:"minCompatibilityMinor"`
		GitVersion     string `json:"gitVersion"`
		GitCommit      string `json:"gitCommit"`
		GitTreeState   string `json:"gitTreeState"`
		BuildDate      string `json:"buildDate"`
		GoVersion      string `json:"goVersion"`
		Compiler       string `json:"compiler"`
		Platform       string `json:"platform"`
	}{
		Major: major, Minor: minor, EmulationMajor: major, EmulationMinor: strconv.Itoa(c.Kubernetes.Emulated),
		MinMajor: major, MinMinor: strconv.Itoa(c.Kubernetes.MinCompatible),
		GitVersion: c.Version, GitCommit: c.Commit, BuildDate: c.buildDate(),
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: platform,
	}, "", "  ")
	if err != nil { // strings always encode
		panic(err)
	}
	return b
}

// The version of Kubernetes whose API the server has.
var (
	major = strconv.Itoa(kubeversion.Current.Major)
	minor = strconv.Itoa(kubeversion.Current.Minor)
)

// buildDate returns the build date in a form that clients can parse.
func (c *Config) buildDate() string {
	if c.BuildDate == "" {
		return "1970-01-01T00:00:00Z"
	}
	return c.BuildDate
}
