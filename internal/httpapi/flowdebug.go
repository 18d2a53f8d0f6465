package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// flowDebugPath is the path of the pages that show priority levels, queues and requests. Their
// format is that of kube-apiserver: cells are separated by commas and aligned.
const flowDebugPath = "/debug/api_priority_and_fairness/"

// flowDebug serves a page about priority and fairness.
func (q *request) flowDebug(name string) error {
	page := map[string]func(*debugTable){
		"dump_priority_levels": q.dumpLevels,
		"dump_queues":          q.dumpQueues,
		"dump_requests":        q.dumpRequests,
	}[name]
	if page == nil || q.h.flows == nil {
		return errNoPage
	}
	var b bytes.Buffer
	t := &debugTable{w: tabwriter.NewWriter(&b, 8, 0, 1, ' ', 0)}
	page(t)
	if err := t.w.Flush(); err != nil {
		return err
	}
	return q.send(http.StatusOK, plainText, b.Bytes())
}

// debugTable writes rows.
type debugTable struct{ w *tabwriter.Writer }

// row writes cells.
func (t *debugTable) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, ",\t")
		}
		if s, ok := c.(string); ok {
			c = cellText(s)
		}
		fmt.Fprint(t.w, c)
	}
	fmt.Fprint(t.w, "\n")
}

// cellBytes bounds a text of a client in a cell.
const cellBytes = 1 << 10

// cellText returns a text that fits into a cell: bounded, without control characters.
func cellText(s string) string {
	if len(s) > cellBytes {
		s = s[:cellBytes] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// seatSeconds is an amount of work.
type seatSeconds float64

// String shows eight decimals and the unit.
func (s seatSeconds) String() string { return strconv.FormatFloat(float64(s), 'f', 8, 64) + "ss" }

func (q *request) dumpLevels(t *debugTable) {
	t.row("PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
		"DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests")
	for _, l := range q.h.gate.Snapshot(false).Levels {
		c := l.Counts
		t.row(l.Name, l.QueuesWithWaiting, l.Executing+l.Waiting == 0, l.Quiescing, l.Waiting, l.Executing, c.Dispatched, c.Rejected, c.TimedOut, c.Cancelled)
	}
}

func (q *request) dumpQueues(t *debugTable) {
	t.row("PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum")
	for _, l := range q.h.gate.Snapshot(true).Levels {
		for i, one := range l.Queues {
			t.row(l.Name, i, one.Waiting, one.Executing, one.Seats, seatSeconds(one.Start), one.WaitingSeats, one.WaitingSeats, seatSeconds(one.WaitingWork))
		}
	}
}

func (q *request) dumpRequests(t *debugTable) {
	details := q.query().Get("includeRequestDetails") != ""
	head := []any{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}
	if details {
		head = append(head, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	t.row(head...)
	for _, s := range q.visited() {
		cells := []any{
			s.Level, s.Schema, s.Queue, s.Place, s.distinguisher, s.Arrived.UTC().Format(time.RFC3339Nano),
			s.Width, s.FinalWidth, s.Extra, s.Began.UTC().Format(time.RFC3339Nano),
		}
		if i := &s.asked; details {
			cells = append(cells, s.User, i.Verb, i.Path, i.Namespace, i.Name, schema.GroupVersion{Group: i.Group, Version: i.Version}.String(), i.Resource, i.Subresource)
		}
		t.row(cells...)
	}
}

// visited is a request that waits or executes.
type visited struct {
	fairness.RequestState
	distinguisher string
	asked         authz.Attributes
}

// visited returns the requests that wait or execute. It only copies them, because it holds locks that
// other requests need.
func (q *request) visited() (all []visited) {
	q.h.gate.Visit(func(s fairness.RequestState) {
		if r, ok := s.Detail.(*request); ok {
			all = append(all, visited{s, r.flow.Distinguisher, r.info.Attributes})
		}
	})
	return all
}
