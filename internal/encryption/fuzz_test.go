package encryption

import (
	"testing"
)

// FuzzOpen opens arbitrary bytes with each method: nothing may panic.
func FuzzOpen(f *testing.F) {
	var all []*rule
	at := place{"secrets", "ns/a"}.path()
	for _, provider := range []string{aescbcKeys("k"), aesgcmKeys("k"), secretboxKeys("k")} {
		s, err := newSet(Config{Path: "c"}.withDefaults(), []byte(rules("secrets", provider)))
		if err != nil {
			f.Fatal(err)
		}
		r := s.rule("secrets")
		all = append(all, r)
		encrypted, err := r.encrypt([]byte(`{"a":"b"}`), at)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encrypted[len(r.ways[0].prefix):])
	}
	key, err := newDataKey(gcmSeed, make([]byte, seedSize))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, encrypted []byte) {
		for _, r := range all {
			_, _ = r.ways[0].method.open(t.Context(), encrypted, at)
		}
		_, _ = key.open(t.Context(), encrypted, at)
		_, _ = (identity{}).open(t.Context(), encrypted, at)
		describe(encrypted)
	})
}

// FuzzEnvelope checks that a decoded envelope can be encoded, and is then decoded to the same.
func FuzzEnvelope(f *testing.F) {
	e := envelope{keyID: "id", source: []byte("source"), annotations: map[string][]byte{"a.example": []byte("b")}, kind: gcmSeed}
	f.Add(append([]byte("\x0a\x03abc"), e.tail()...))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := readEnvelope(b)
		if err != nil {
			return
		}
		again, err := readEnvelope(append([]byte("\x0a\x01x"), e.tail()...))
		if err != nil || again.cacheKey() != e.cacheKey() {
			t.Errorf("%q: read again: %v", b, err)
		}
	})
}
