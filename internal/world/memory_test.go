package world

import (
	"io/fs"
	"math"
	"testing"
)

func TestProcessMemory(t *testing.T) {
	const meminfo = "MemTotal:       16384 kB\nMemFree:        1 kB\n"
	for name, c := range map[string]struct {
		limit int64
		files map[string]string
		want  int64
	}{
		"nothing is known": {math.MaxInt64, nil, unknownMemory},
		"the machine":      {math.MaxInt64, map[string]string{"/proc/meminfo": meminfo}, 16 << 20},
		"GOMEMLIMIT":       {8 << 20, map[string]string{"/proc/meminfo": meminfo}, 8 << 20},
		"a control group": {math.MaxInt64, map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/a/b\n",
			"/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "5000000\n", "/sys/fs/cgroup/memory.max": "6000000\n",
		}, 5_000_000},
		"a container": {math.MaxInt64, map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "0::/../../elsewhere\n", "/sys/fs/cgroup/memory.max": "7000000\n",
		}, 7_000_000},
		"version 1": {math.MaxInt64, map[string]string{
			"/proc/meminfo": meminfo, "/proc/self/cgroup": "5:cpu:/x\n4:memory:/a\n",
			"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9000000\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 9_000_000},
	} {
		read := func(name string) ([]byte, error) {
			if b, ok := c.files[name]; ok {
				return []byte(b), nil
			}
			return nil, fs.ErrNotExist
		}
		if got := processMemory(c.limit, read); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	for limit, want := range map[int64]int64{1 << 20: 128 << 20, 2 << 30: 256 << 20, 1 << 40: 512 << 20} {
		if got := definitionsQuota(limit, func(string) ([]byte, error) { return nil, fs.ErrNotExist }); got != want {
			t.Errorf("definitions in a process of %d bytes: got %d, want %d", limit, got, want)
		}
	}
	m := Memory{MaxObjectBytes: 5}
	if got := m.quota(); got != 5 {
		t.Errorf("a quota of 5: got %d", got)
	}
	if m.MaxObjectBytes = -1; m.quota() != 0 {
		t.Errorf("no quota: got %d", m.quota())
	}
	if m.MaxObjectBytes = 0; m.quota() < leastQuota {
		t.Errorf("the default: got %d", m.quota())
	}
}
