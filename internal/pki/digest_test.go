package pki_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestFlippedBits checks that a changed bit in any file of an authority is detected: the authority
// does not open, and the error names the file, except for the serving certificate, which is
// replaced.
func TestFlippedBits(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	first := open(t, dir, c)
	token, ca := first.AdminToken(), first.CertificatePEM()
	for _, name := range []string{"admin.token", "admin.token.sha256", "ca.pem", "ca.pem.sha256", "serving.pem", "serving.pem.sha256"} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		mayOpen := strings.HasPrefix(name, "serving.pem") || name == "admin.token.sha256" || name == "ca.pem.sha256"
		step := 1 + len(good)/100 // all bits of a token, some of every line of a certificate
		switch {
		case mayOpen && tier.IsFull(t):
			step = 31
		case mayOpen: // each makes a certificate and writes it to the disk
			step = 311
		}
		for bit := 0; bit < len(good)*8; bit += step {
			bad := slices.Clone(good)
			bad[bit/8] ^= 1 << (bit % 8)
			overwrite(t, path, bad)
			a, err := pki.Open(pki.Config{Dir: dir, Now: c.now})
			switch {
			case err == nil && !mayOpen:
				t.Fatalf("%s opens with bit %d flipped", name, bit)
			case err == nil && (a.AdminToken() != token || !bytes.Equal(a.CertificatePEM(), ca)):
				t.Fatalf("%s: bit %d made another authority", name, bit)
			case err != nil && !strings.Contains(err.Error(), strings.TrimSuffix(path, ".sha256")):
				t.Fatalf("%s: bit %d: %v", name, bit, err)
			case err != nil && strings.Contains(err.Error(), token):
				t.Fatalf("the error shows the token: %v", err)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if open(t, dir, c).AdminToken() != token {
		t.Error("the token is another one")
	}
}

// overwrite writes a file in place. Some file systems flush one that os.WriteFile has truncated, which takes long.
func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Truncate(int64(len(b))), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestWithoutDigests: a directory of an older version opens, and is checked from then
// on; so is a file that was changed by a user who removes its digest.
func TestWithoutDigests(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	token := open(t, dir, c).AdminToken()
	all, err := filepath.Glob(filepath.Join(dir, "*.sha256"))
	if err != nil || len(all) != 3 {
		t.Fatalf("%q, %v", all, err)
	}
	for _, path := range all {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if open(t, dir, c).AdminToken() != token {
		t.Error("the token is another one")
	}
	mine := strings.Repeat("mine", 10)
	if err := os.WriteFile(filepath.Join(dir, "admin.token"), []byte(mine+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Open(pki.Config{Dir: dir, Now: c.now}); err == nil || !strings.Contains(err.Error(), "admin.token.sha256") {
		t.Errorf("a changed token: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "admin.token.sha256")); err != nil {
		t.Fatal(err)
	}
	if got := open(t, dir, c).AdminToken(); got != mine {
		t.Errorf("the token is %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "admin.token")); err != nil { // the way to a new one
		t.Fatal(err)
	}
	if got := open(t, dir, c).AdminToken(); got == mine || got != open(t, dir, c).AdminToken() {
		t.Errorf("the token is %q", got)
	}
}

// TestDigestOfRenewal: a crash between a new digest and its file leaves one that opens.
func TestDigestOfRenewal(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	open(t, dir, c)
	path := filepath.Join(dir, "ca.pem")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Time = c.Add(8 * year)
	open(t, dir, c)
	after, err := os.ReadFile(path)
	if err != nil || bytes.Equal(before, after) {
		t.Fatalf("it was not renewed: %v", err)
	}
	for _, content := range [][]byte{before, after} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Open(pki.Config{Dir: dir, Now: c.now}); err != nil {
			t.Error(err)
		}
	}
}
