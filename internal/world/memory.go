package world

import (
	"bufio"
	"cmp"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	// leastQuota is the default quota of a process with next to no memory.
	leastQuota = 64 << 20 // bytes
	// unknownMemory is assumed if the system does not report a limit.
	unknownMemory = 8 << 30 // bytes
)

// quota returns the limit of the bytes of current objects; zero is none.
//
// The default is half of the memory that the process may use, without the memory for history.
// The other half is for the garbage collector and for requests.
func (m *Memory) quota() int64 {
	if m.MaxObjectBytes != 0 {
		return max(m.MaxObjectBytes, 0)
	}
	history := cmp.Or(m.MaxHistoryBytes, store.DefaultMaxMemory)
	return max((processMemory(debug.SetMemoryLimit(-1), os.ReadFile)-history)/2, leastQuota)
}

// definitionsQuota returns the limit of the bytes that all definitions of custom resources add to a
// document of OpenAPI: an eighth of the memory of the process, because there are four documents,
// which are kept compressed. 512 MiB have 10,000 versions; a client of /openapi/v2 gets all of them
// in one document.
func definitionsQuota(limit int64, read func(string) ([]byte, error)) int64 {
	return min(max(processMemory(limit, read)/8, 128<<20), 512<<20)
}

// processMemory returns how much memory the process may use: the lowest of the limit of the
// Go runtime, the limits of its control groups, and the memory of the machine.
func processMemory(limit int64, read func(string) ([]byte, error)) int64 {
	if m := machineMemory(read); m > 0 {
		limit = min(limit, m)
	}
	if g := groupMemory(read); g > 0 {
		limit = min(limit, g)
	}
	if limit == math.MaxInt64 {
		return unknownMemory
	}
	return limit
}

// machineMemory returns the memory of the machine on Linux, zero elsewhere.
func machineMemory(read func(string) ([]byte, error)) int64 {
	b, err := read("/proc/meminfo")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(strings.NewReader(string(b)))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 53)
			return kib << 10
		}
	}
	return 0
}

// groupMemory returns the lowest memory limit of the control groups (v1 or v2) of the process;
// zero if there is none.
func groupMemory(read func(string) ([]byte, error)) int64 {
	b, err := read("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(0)
	look := func(file string) {
		b, err := read(file)
		if err != nil {
			return
		}
		// "max", and the largest number of pages, are no limit.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && n < 1<<60 && (least == 0 || n < least) {
			least = n
		}
	}
	for line := range strings.Lines(string(b)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		root, name := "/sys/fs/cgroup", "memory.max"
		switch {
		case id == "0" && controllers == "":
		case controllers == "memory":
			root, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// A container may see its own group as the root, whatever the path says.
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			look(path.Join(root, dir, name))
			if dir == "/" {
				break
			}
		}
	}
	return least
}
