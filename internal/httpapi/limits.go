package httpapi

import "time"

// Limits are the limits of one server. A zero field means its value in DefaultLimits.
type Limits struct {
	BodyBytes          int64         // of a request body: 413 above
	HeaderBytes        int           // of a request's headers: 431 above
	RequestTimeout     time.Duration // of a request that is not long-running: 504
	MutatingTimeout    time.Duration // the same of a write
	InFlight           int           // reads at once: 429 above; with MutatingInFlight, the seats of all priority levels
	MutatingInFlight   int           // writes at once; negative, as InFlight: none, or no limit with Config.NoFairness
	Watches            int           // watches at once: 429 above
	Connections        int           // connections to nodes, Pods and extension servers that requests hold at once: 429 above
	WaitingBytes       int64         // held by requests that wait for their clients: bodies, responses; 429 above
	ReadHeaderTimeout  time.Duration // from the first byte of a request to the end of its headers
	IdleTimeout        time.Duration // of a connection without a request
	WriteTimeout       time.Duration // of one write to a client that does not read
	StreamsPerConn     int           // HTTP/2
	UploadBytesPerConn int           // HTTP/2 flow control window for uploads
	CompressAbove      int           // responses of more bytes are gzipped where the client accepts it
	WriteBatchBytes    int           // lists are written in pieces of about this size
}

// DefaultLimits are the defaults of kube-apiserver. Watches, Connections, WaitingBytes, WriteTimeout
// and WriteBatchBytes have no counterpart there. WaitingBytes is enough for the lists of 900
// clients that do not read, or for 85 bodies of maximal size.
var DefaultLimits = Limits{
	BodyBytes:          3 << 20,
	HeaderBytes:        1 << 20,
	RequestTimeout:     60 * time.Second,
	MutatingTimeout:    34 * time.Second,
	InFlight:           400,
	MutatingInFlight:   200,
	Watches:            50_000,
	Connections:        50_000,
	WaitingBytes:       256 << 20,
	ReadHeaderTimeout:  32 * time.Second,
	IdleTimeout:        90 * time.Second,
	WriteTimeout:       30 * time.Second,
	StreamsPerConn:     100,
	UploadBytesPerConn: 256 << 10,
	CompressAbove:      128 << 10,
	WriteBatchBytes:    128 << 10,
}

// WithDefaults returns the limits with the zero fields filled in.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits
	fill(&l.BodyBytes, d.BodyBytes)
	fill(&l.HeaderBytes, d.HeaderBytes)
	fill(&l.RequestTimeout, d.RequestTimeout)
	fill(&l.MutatingTimeout, d.MutatingTimeout)
	fill(&l.InFlight, d.InFlight)
	fill(&l.MutatingInFlight, d.MutatingInFlight)
	fill(&l.Watches, d.Watches)
	fill(&l.Connections, d.Connections)
	fill(&l.WaitingBytes, d.WaitingBytes)
	fill(&l.ReadHeaderTimeout, d.ReadHeaderTimeout)
	fill(&l.IdleTimeout, d.IdleTimeout)
	fill(&l.WriteTimeout, d.WriteTimeout)
	fill(&l.StreamsPerConn, d.StreamsPerConn)
	fill(&l.UploadBytesPerConn, d.UploadBytesPerConn)
	fill(&l.CompressAbove, d.CompressAbove)
	fill(&l.WriteBatchBytes, d.WriteBatchBytes)
	return l
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
