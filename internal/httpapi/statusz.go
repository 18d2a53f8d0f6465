package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/wire"
)

const statuszPath = "/statusz"

// statusz is the status of the process, as JSON.
type statusz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	StartTime         metav1.Time `json:"startTime"`
	UptimeSeconds     int64       `json:"uptimeSeconds"`
	GoVersion         string      `json:"goVersion"`
	BinaryVersion     string      `json:"binaryVersion"`
	EmulationVersion  string      `json:"emulationVersion"`
	Paths             []string    `json:"paths"`
}

// statusz serves /statusz: text for people, or a Statusz of config.k8s.io.
func (q *request) statusz() error {
	out, version, err := wire.NegotiateStatusz(q.accept())
	if err != nil {
		return err
	}
	up := max(q.h.c.Now().Sub(q.h.root.started), 0)
	s := statusz{
		TypeMeta:   metav1.TypeMeta{Kind: "Statusz", APIVersion: "config.k8s.io/" + version},
		ObjectMeta: metav1.ObjectMeta{Name: "apiserver"},
		StartTime:  metav1.NewTime(q.h.root.started), UptimeSeconds: int64(up / time.Second),
		GoVersion: runtime.Version(), BinaryVersion: strings.TrimPrefix(q.h.c.Version, "v"), EmulationVersion: major + "." + strconv.Itoa(q.h.c.Kubernetes.Emulated),
		Paths: debuggingPaths(q.paths()),
	}
	if out.Media == "" {
		q.text(http.StatusOK, s.text())
		return nil
	}
	if version == "v1alpha1" {
		q.header()["Warning"] = warningHeaders([]string{"This version of the statusz endpoint is deprecated. Please use a newer version."})
	}
	value, err := json.Marshal(&s)
	if err != nil {
		return err
	}
	q.audited.sends(value)
	body, err := q.encode(value, out)
	if err != nil {
		return err
	}
	return q.send(http.StatusOK, []string{wire.StatuszType(out.Media, version)}, body)
}

// text formats the status for people.
func (s *statusz) text() string {
	return fmt.Sprintf(`
%s statusz
Warning: This text is for debugging. Programs should request JSON, since its format can change.

Started: %s
Up: %d hr %02d min %02d sec
Go version: %s
Binary version: %s
Emulation version: %s
Paths: %s
`, s.Name, s.StartTime.UTC().Format(time.UnixDate), s.UptimeSeconds/3600, s.UptimeSeconds/60%60, s.UptimeSeconds%60,
		s.GoVersion, s.BinaryVersion, s.EmulationVersion, strings.Join(s.Paths, " "))
}

// debuggingPaths returns the first elements of the paths that help with debugging, sorted.
func debuggingPaths(all []string) []string {
	var found []string
	for _, p := range all {
		first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		switch first {
		case "", "api", "apis", "openapi", "openid", ".well-known":
		default:
			found = append(found, "/"+first)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
