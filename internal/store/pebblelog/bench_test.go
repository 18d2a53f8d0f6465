package pebblelog_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

var benchDirFlag = flag.String("benchdir", "", "where BenchmarkStart keeps its log for the next run; empty: nowhere")

// realistic is about 2 KB of JSON as objects have it: it compresses, and no two
// are the same.
func realistic(rng *rand.Rand, key string, created, r store.Revision) *store.Object {
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"uid":"%016x-%016x","resourceVersion":"`, key, rng.Uint64(), rng.Uint64())
	at := b.Len()
	fmt.Fprintf(&b, `%d","labels":{"app":"web-%d","pod-template-hash":"%08x"},"managedFields":[`, r, rng.IntN(50), rng.Uint32())
	for i := 0; b.Len() < 1700; i++ {
		fmt.Fprintf(&b, `{"manager":"kubelet-%d","operation":"Update","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready%d\"}":{"f:lastTransitionTime":{}}}}}},`, rng.IntN(9), i)
	}
	fmt.Fprintf(&b, `{}]},"spec":{"nodeName":"node-%d","containers":[{"name":"c","image":"registry.example/app@sha256:%064x"}]},"status":{"podIP":"10.%d.%d.%d"}}`,
		rng.IntN(1000), rng.Uint64(), rng.IntN(256), rng.IntN(256), rng.IntN(256))
	return &store.Object{Key: key, Held: []byte(b.String()), Created: created, Modified: r, RevisionAt: int32(at)}
}

func randomID(rng *rand.Rand) store.AuditID {
	var id [16]byte
	binary.NativeEndian.PutUint64(id[:], rng.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rng.Uint64())
	return store.AuditUUID(id)
}

// BenchmarkAppend updates objects of 2 KB, in groups, on the disk.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 4, 64} {
		b.Run(fmt.Sprintf("group=%d", size), func(b *testing.B) {
			log, err := pebblelog.Open(b.Context(), pebblelog.Options{Dir: filepath.Join(b.TempDir(), "log")})
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 1))
			current := make([]*store.Object, 512)
			group := make([]store.Entry, size)
			actor := &store.Actor{User: "system:node:n1", UserAgent: "kubelet/v1.36.0 (linux/amd64)", FieldManager: "kubelet", Subresource: "status"}
			var r store.Revision
			b.ReportAllocs()
			for b.Loop() {
				for i := range group {
					r++
					k := rng.IntN(len(current))
					key := fmt.Sprintf("ns/pod-%04d", k)
					var o *store.Object
					if before := current[k]; before == nil {
						o = realistic(rng, key, r, r)
					} else {
						o = before.At(r)
					}
					group[i] = store.Entry{Collection: "pods", Key: key, Revision: r, Before: current[k], Object: o, Origin: &store.Origin{
						Time: time.UnixMicro(1_800_000_000_000_000 + int64(r)), Verb: store.VerbUpdate, Actor: actor, AuditID: randomID(rng)}}
					current[k] = o
				}
				if err := log.Append(context.Background(), group, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "changes/s")
			if err := log.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

const (
	benchObjects = 100_000
	benchChanges = 400_000
)

// benchLog makes, or finds, a log of 100,000 objects of 2 KB with 300,000
// replaced versions.
func benchLog(b *testing.B) string {
	dir := *benchDirFlag
	if dir == "" {
		dir = b.TempDir()
	}
	dir = filepath.Join(dir, "log")
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
		return dir
	}
	log, err := pebblelog.Open(b.Context(), pebblelog.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(2, 2))
	current := make([]*store.Object, benchObjects)
	var r store.Revision
	began := time.Now()
	for r < benchChanges {
		group := make([]store.Entry, 64)
		for i := range group {
			k := int(r)
			if k >= benchObjects {
				k = rng.IntN(benchObjects)
			}
			r++
			key := fmt.Sprintf("ns-%02d/pod-%06d", k%50, k)
			created := r
			if current[k] != nil {
				created = current[k].Created
			}
			o := realistic(rng, key, created, r)
			group[i] = store.Entry{Collection: "pods", Key: key, Revision: r, Before: current[k], Object: o}
			current[k] = o
		}
		if err := log.Append(b.Context(), group, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("%d changes in %v; %+v", r, time.Since(began).Round(time.Millisecond), log.Usage())
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkStart opens the log of benchLog and reads the newest state.
func BenchmarkStart(b *testing.B) {
	dir := benchLog(b)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		log, err := pebblelog.Open(b.Context(), pebblelog.Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		opened := time.Since(began)
		objects := make([]*store.Object, benchObjects)
		var n, bytes atomic.Int64
		bounds, err := log.Replay(b.Context(), func(_ string, o *store.Object) error {
			objects[n.Add(1)-1] = o
			bytes.Add(int64(len(o.Bytes())))
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(opened.Seconds(), "s-open")
		b.ReportMetric(time.Since(began).Seconds(), "s-start")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n.Load()), "B/object")
		b.ReportMetric(float64(bytes.Load())/float64(n.Load()), "B/value")
		b.ReportMetric(float64(after.Sys)/mib, "MiB-sys")
		runtime.KeepAlive(objects)
		_ = bounds
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkObjectsAt reads the log of benchLog as it was in the middle.
func BenchmarkObjectsAt(b *testing.B) {
	log := openBench(b)
	for b.Loop() {
		n := 0
		for _, err := range log.ObjectsAt(b.Context(), "pods", benchChanges/2, "", "") {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		b.ReportMetric(float64(n), "objects")
	}
}

// BenchmarkChanges reads 20,000 changes of the log of benchLog.
func BenchmarkChanges(b *testing.B) {
	log := openBench(b)
	const n = 20_000
	for b.Loop() {
		for _, err := range log.Changes(b.Context(), "pods", benchChanges/2, benchChanges/2+n) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "changes/s")
}

func openBench(b *testing.B) *pebblelog.Log {
	log, err := pebblelog.Open(b.Context(), pebblelog.Options{Dir: benchLog(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
	return log
}
