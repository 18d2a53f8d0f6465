package etcdlog_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// fullDisk runs a migration to a file system of its own ($1), which another process fills but for a number of bytes ($2) as soon
// as the copy has begun. Then it makes space, migrates again, and checks the directory. $0 is the program, the rest its flags.
const fullDisk = `
mount -t tmpfs -o size=160m,mode=700 tidemark "$1" || exit 99
disk=$1 leave=$2; shift 2
(until [ -e "$disk/data/log" ]; do sleep 0.002; done
avail=$(df --output=avail -B1 "$disk" | tail -1); head -c $((avail - leave)) /dev/zero >"$disk/filler" 2>/dev/null) &
"$0" migrate "$@" </dev/null; echo "first: $?"
wait
echo "left:" $(ls -A "$disk")
rm -f "$disk/filler"
"$0" migrate "$@" </dev/null; echo "second: $?"
"$0" check "$disk/data"; echo "check: $?"
`

// TestMigrateFullDisk: a disk that fills while migrate copies from etcd ends it. Nothing of the target stays, etcd is not marked as
// moved, and the same command succeeds when there is space again.
func TestMigrateFullDisk(t *testing.T) {
	tier.Full(t)
	if _, err := exec.LookPath("unshare"); err != nil || os.Geteuid() != 0 {
		t.Skip("it mounts a file system, for which it needs root and unshare")
	}
	m, c := newMigrated(t), startCluster(t, 1, nil)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
	must(t, err)
	defer client.Close()
	const objects, size = 300, 100_000
	noise := make([]byte, size/2) // does not compress
	for i := range objects {
		_, err := rand.Read(noise)
		must(t, err)
		_, err = client.Put(t.Context(), fmt.Sprintf("/registry/configmaps/default/c%d", i),
			fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c%d","namespace":"default","uid":"u%d"},"data":{"k":"%x"}}`, i, i, noise))
		must(t, err)
	}
	disk := m.path("disk")
	must(t, os.Mkdir(disk, 0o700))
	for _, leave := range []string{"0", "20000000", "36000000"} {
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", fullDisk, m.binary, disk, leave, "--from="+c.servers()[0], "--to="+disk+"/data").CombinedOutput()
		must(t, err)
		for _, want := range []string{"no space left", "first: 1\n", "left: filler\n", "second: 0\n", "check: 0\n", fmt.Sprintf("%d objects at", objects)} {
			if !strings.Contains(string(out), want) {
				t.Errorf("with %s bytes free, there is no %q:\n%s", leave, want, out)
			}
		}
		_, err = client.Delete(t.Context(), "/registry/tidemark.dev/", clientv3.WithPrefix()) // it is marked as moved
		must(t, err)
	}
}
