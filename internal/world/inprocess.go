package world

import (
	"net/http"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
)

// inProcessHost is the host in the URLs of clients in the process. No name server knows it.
const inProcessHost = "tidemark.local"

// inProcessPort is the port that the Service `kubernetes` shows for a server without a listener.
const inProcessPort = 6443

// newDirect returns a server for clients in the process.
func (p *process) newDirect(handle http.HandlerFunc, drain func()) *inprocess.Server {
	return &inprocess.Server{
		Handler: handle, Host: inProcessHost, Drain: drain, HeaderBytes: httpapi.DefaultLimits.HeaderBytes,
		WriteTimeout: httpapi.DefaultLimits.WriteTimeout, Log: p.logOf(logConnections),
	}
}
