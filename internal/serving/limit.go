package serving

const (
	// spare is how many file descriptors are reserved: 500 for the log's files, and the rest for
	// a program that embeds the server.
	spare = 640
	// connectionBytes is the memory of an idle connection: TLS, buffers and goroutines.
	connectionBytes = 40 << 10
	// unauthenticatedBytes is the memory of a connection with the headers that are not charged.
	unauthenticatedBytes = connectionBytes + headerCost*freeHeaderBytes
	// leastConnections is how many connections are possible with next to no files or memory.
	leastConnections = 16
)

// MaxConnections returns how many connections the process's limit of open files allows, and a quarter
// of its memory; zero: the memory is not known. The Go runtime raises the limit of open files at the
// start, as far as it may.
func MaxConnections(memory int64) int {
	return connections(openFiles(), memory)
}

func connections(files uint64, memory int64) int {
	const most = 1 << 20
	files = min(files, most)
	n := files - min(files, max(spare, files/10))
	if memory > 0 {
		n = min(n, uint64(memory)/4/connectionBytes)
	}
	return int(max(leastConnections, n))
}

// unauthenticatedConnections returns how many of the connections may be unauthenticated for longer
// than their grace: those that fit into an eighth of the memory, if it is known.
func unauthenticatedConnections(connections int, memory int64) int {
	if memory <= 0 {
		return connections
	}
	return min(connections, int(max(leastConnections, memory/8/unauthenticatedBytes)))
}
