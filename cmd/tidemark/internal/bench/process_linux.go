package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// ticksPerSecond is USER_HZ, which is 100 on every platform that Go runs on.
const ticksPerSecond = 100

// readUsage reads the CPU of processes.
func readUsage(pids []int) (usage, error) {
	u := usage{own: -1}
	for _, pid := range pids {
		p, err := readProcessUsage(pid)
		if err != nil {
			return u, fmt.Errorf("process %d of the server: %w", pid, err)
		}
		u.processes = append(u.processes, p)
	}
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil {
		u.own = float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	return u, nil
}

func readProcessUsage(pid int) (processUsage, error) {
	p := processUsage{threads: map[int]uint64{}}
	dir := fmt.Sprintf("/proc/%d", pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return p, err
	}
	// The name in parentheses can hold anything; the fields behind it cannot.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return p, errors.New("/proc/PID/stat is too short")
	}
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return p, err
		}
		p.ticks += float64(n) / ticksPerSecond
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return p, err
	}
	for _, t := range threads {
		b, err := os.ReadFile(dir + "/task/" + t.Name() + "/schedstat")
		if err != nil {
			continue // it has ended since
		}
		id, _ := strconv.Atoi(t.Name())
		ran, _, _ := strings.Cut(string(b), " ")
		if p.threads[id], err = strconv.ParseUint(ran, 10, 64); err != nil {
			return p, err
		}
	}
	return p, nil
}

// group lists the processes of the group that a command leads.
func group(cmd *exec.Cmd) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 2 && fields[0] != "Z" && fields[2] == strconv.Itoa(cmd.Process.Pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// groupLives reports whether a process of the group is running. A zombie is not, though it
// can still be signalled.
func groupLives(cmd *exec.Cmd) bool { return len(group(cmd)) > 0 }

// readMemory adds up the memory of processes; nil without processes.
func readMemory(pids []int) (*Memory, error) {
	if len(pids) == 0 {
		return nil, nil
	}
	var m Memory
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return nil, fmt.Errorf("process %d of the server: %w", pid, err)
		}
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			switch name {
			case "VmRSS":
				m.RSS += kibibytes(value)
			case "RssAnon":
				m.Anon += kibibytes(value)
			case "VmHWM":
				m.Peak += kibibytes(value)
			}
		}
	}
	return &m, nil
}

// kibibytes reads "  1234 kB" as bytes.
func kibibytes(value string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
	return n << 10
}

// resetPeaks resets the peak memory of the processes to their current memory, and
// reports whether that worked for all.
func resetPeaks(pids []int) bool {
	ok := len(pids) > 0
	for _, pid := range pids {
		ok = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) == nil && ok
	}
	return ok
}

// readProcess describes a process.
func readProcess(pid int) (Process, error) {
	p := Process{PID: pid}
	m, err := readMemory([]int{pid})
	if err != nil {
		return p, err
	}
	p.Memory = *m
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	p.Command = strings.TrimSpace(string(name))
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // another user's cannot be read
	for v := range strings.SplitSeq(string(env), "\x00") {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "GOGC":
			p.GOGC = value
		case "GOMEMLIMIT":
			p.GOMEMLIMIT = value
		}
	}
	return p, nil
}

// readMachine describes this machine.
func readMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), OS: "linux", Arch: runtime.GOARCH, GoVersion: runtime.Version()}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.OS = "linux " + strings.TrimSpace(string(b))
	}
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpu)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			m.Model = strings.TrimSpace(value)
			break
		}
	}
	memory, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(memory)) {
		if value, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			m.MemoryMiB = kibibytes(value) >> 20
		}
	}
	return m
}

// lowerSession lowers the priority of a process's session. With the kernel's autogroups, sessions get
// equal parts of the processor, whatever the niceness of their processes is.
func lowerSession(pid int, niceness string) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(niceness), 0o600) // absent without autogroups
}
