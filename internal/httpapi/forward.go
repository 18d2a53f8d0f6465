package httpapi

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// This file passes requests on to extension servers.

// extension returns the extension server of the request's group and version; nil: this server serves them.
func (q *request) extension() *aggregation.Backend {
	p := &q.info
	if p.Group == "" || p.kind != versionPath && p.kind != resourcePath {
		return nil
	}
	return q.aggregation().Backend(p.Group, p.Version)
}

// aggregation knows the extension servers; nil: there are none, or the request reads the past, which they do not have.
func (q *request) aggregation() *aggregation.Aggregator {
	if q.instant != nil {
		return nil
	}
	return q.h.c.Aggregation
}

// forward responds with the response of an extension server. The request has no seat meanwhile.
func (q *request) forward(to *aggregation.Backend) error {
	if err := q.holdConnection(); err != nil {
		return err
	}
	c := q.caller()
	var ctx context.Context
	if c.Long = q.longRunning() || upgrade.IsUpgrade(q.r); c.Long {
		var cancel func()
		ctx, cancel = q.watchContext()
		defer cancel()
	} else {
		ctx = q.context()
	}
	if err := to.Serve(&forwarded{countingWriter{q.w, q}}, q.r.WithContext(ctx), c); err != nil {
		return err
	}
	if q.code == 0 {
		q.code = http.StatusOK
	}
	return nil
}

// caller returns the request as extension servers get it.
func (q *request) caller() aggregation.Caller {
	return aggregation.Caller{User: q.info.User, AuditID: q.auditID[0], Document: q.info.kind == versionPath, Drained: q.h.drained}
}

// forwarded is the response of an extension server, which may take over the connection.
type forwarded struct{ countingWriter }

// Hijack implements http.Hijacker.
func (f *forwarded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(f.ResponseWriter).Hijack()
	if err == nil {
		f.q.wrote, f.q.code = true, http.StatusSwitchingProtocols
		f.q.auditHeaders(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}
