package serving

// spare is how many file descriptors are reserved: 500 for the log's files, and the rest for
// a program that embeds the server.
const spare = 640

// MaxConnections returns how many connections the process's limit of open files allows. The
// Go runtime raises that limit at the start, as far as it may.
func MaxConnections() int {
	return connections(openFiles())
}

func connections(files uint64) int {
	const most = 1 << 20 // more than a machine has memory for
	files = min(files, most)
	return int(max(16, files-min(files, max(spare, files/10))))
}
