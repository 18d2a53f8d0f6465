package encryption

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
)

// each runs a benchmark without encryption, and with each provider.
func each(b *testing.B, f func(b *testing.B, s *Set)) {
	kms := kmsProvider("p", kmstest.Start(b, "one"), "1m")
	for _, c := range []struct{ name, config string }{
		{"none", ""}, {"identity", rules("secrets", "identity: {}")}, {"aesgcm", rules("secrets", aesgcmKeys("k"))},
		{"secretbox", rules("secrets", secretboxKeys("k"))}, {"aescbc", rules("secrets", aescbcKeys("k"))}, {"kms", rules("secrets", kms)},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := &Set{}
			if c.config != "" {
				s = awaitWell(b, c.config)
			}
			f(b, s)
		})
	}
}

const benchHead = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"`

// benchWrite is a Secret of 1 KiB.
func benchWrite(key string, condition store.Revision) store.Write {
	value := append([]byte(benchHead+`"},"data":"`), bytes.Repeat([]byte("x"), 1000-len(benchHead))...)
	return store.Write{Collection: "secrets", Key: key, Value: append(value, `"}`...), RevisionAt: len(benchHead), If: condition}
}

func benchStore(b *testing.B, fs vfs.FS, s *Set) *store.Store {
	b.Helper()
	l := Wrap(mustOpen(b, pebblelog.Options{Dir: "/log", FS: fs}), NewActive(s))
	st, err := stores.Open(b.Context(), store.Options{Log: l, Encryption: l})
	if err != nil {
		b.Fatal(err)
	}
	return st
}

func commit(b *testing.B, s *store.Store, w store.Write) *store.Object {
	b.Helper()
	o, err := s.Commit(b.Context(), w)
	if err != nil {
		b.Fatal(err)
	}
	return o
}

// BenchmarkCreate creates Secrets of 1 KiB, on a file system in memory.
func BenchmarkCreate(b *testing.B) {
	each(b, func(b *testing.B, s *Set) {
		st := benchStore(b, vfs.NewMem(), s)
		defer st.Close()
		i := 0
		for b.Loop() {
			i++
			commit(b, st, benchWrite(fmt.Sprintf("ns/%d", i), 0))
		}
	})
}

// BenchmarkUpdate updates one of 1,000 Secrets: the replaced version is read back.
func BenchmarkUpdate(b *testing.B) {
	each(b, func(b *testing.B, s *Set) {
		st := benchStore(b, vfs.NewMem(), s)
		defer st.Close()
		var at [1000]store.Revision
		i := 0
		for b.Loop() {
			n := i % len(at)
			at[n] = commit(b, st, benchWrite(fmt.Sprintf("ns/%d", n), at[n])).Modified
			i++
		}
	})
}

// BenchmarkStart opens a log with 10,000 Secrets.
func BenchmarkStart(b *testing.B) {
	each(b, func(b *testing.B, s *Set) {
		fs := vfs.NewMem()
		st := benchStore(b, fs, s)
		for i := range 10_000 {
			commit(b, st, benchWrite(fmt.Sprintf("ns/%d", i), 0))
		}
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := benchStore(b, fs, s).Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOutdated asks whether one of 1,000 Secrets is outdated, as a write that changes nothing
// does.
func BenchmarkOutdated(b *testing.B) {
	each(b, func(b *testing.B, s *Set) {
		st := benchStore(b, vfs.NewMem(), s)
		defer st.Close()
		for i := range 1000 {
			commit(b, st, benchWrite(fmt.Sprintf("ns/%d", i), 0))
		}
		i := 0
		for b.Loop() {
			if st.Outdated("secrets", fmt.Sprintf("ns/%d", i%1000)) {
				b.Fatal("outdated")
			}
			i++
		}
	})
}
