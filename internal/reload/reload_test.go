package reload_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/reload"
)

// fixture is a value made of one file, with a clock that the test turns.
type fixture struct {
	path  string
	log   strings.Builder
	now   time.Time
	loads int
	value *reload.Value[string]
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{path: filepath.Join(t.TempDir(), "f"), now: time.Unix(1e9, 0)}
	f.write(t, "one")
	v, err := reload.New(reload.Config[string]{
		Files: []string{f.path}, Load: f.load,
		Now: func() time.Time { return f.now },
		Log: slog.New(slog.NewTextHandler(&f.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.value = v
	return f
}

func (f *fixture) load() (string, error) {
	f.loads++
	b, err := os.ReadFile(f.path)
	if err == nil && string(b) == "bad" {
		err = errors.New("this is bad")
	}
	return string(b), err
}

// write replaces the file, and makes it look old, so that it counts as settled.
func (f *fixture) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.age(t, time.Hour)
}

func (f *fixture) age(t *testing.T, d time.Duration) {
	t.Helper()
	then := time.Now().Add(-d)
	if err := os.Chtimes(f.path, then, then); err != nil {
		t.Fatal(err)
	}
}

func TestReload(t *testing.T) {
	f := newFixture(t)
	want := func(text string) {
		t.Helper()
		if got := f.value.Get(); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	want("one")
	f.write(t, "three")
	want("one") // not yet time to look
	f.now = f.now.Add(reload.Interval)
	want("three")

	f.write(t, "bad")
	f.now = f.now.Add(reload.Interval)
	want("three")
	if !strings.Contains(f.log.String(), "this is bad") {
		t.Errorf("the log does not say why the file was not taken:\n%s", f.log.String())
	}
	os.Remove(f.path)
	f.now = f.now.Add(reload.Interval)
	want("three")

	f.write(t, "four")
	f.now = f.now.Add(-time.Hour) // a clock put back
	want("four")
}

func TestUnchanged(t *testing.T) {
	f := newFixture(t)
	for range 5 {
		f.now = f.now.Add(reload.Interval)
		f.value.Get()
	}
	if f.loads != 1 {
		t.Errorf("a file that does not change was read %d times", f.loads)
	}
}

// TestSameStamp: a change within the resolution of the file's time stamp, to the
// same size, is seen all the same.
func TestSameStamp(t *testing.T) {
	f := newFixture(t)
	stamp := time.Now().Add(time.Hour) // the file never counts as settled
	for _, text := range []string{"aaa", "bbb"} {
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f.path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
		f.now = f.now.Add(reload.Interval)
		if got := f.value.Get(); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

func TestFirstLoadFails(t *testing.T) {
	_, err := reload.New(reload.Config[string]{Load: func() (string, error) { return "", errors.New("no") }})
	if err == nil {
		t.Error("a value that cannot be loaded was made")
	}
}

func TestConcurrent(t *testing.T) {
	f := newFixture(t)
	v, err := reload.New(reload.Config[string]{Files: []string{f.path}, Load: func() (string, error) {
		b, err := os.ReadFile(f.path)
		return string(b), err
	}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if v.Get() != "one" {
					t.Error("a wrong value")
				}
			}
		})
	}
	wg.Wait()
}

// TestList: files that come and go, and new names of a file, are changes.
func TestList(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1e9, 0)
	list := func() []string {
		files := []string{dir}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			files = append(files, filepath.Join(dir, e.Name()))
		}
		return files
	}
	age := func() { // all count as settled, at times that are not those of before
		then := time.Now().Add(-time.Hour)
		for _, path := range list() {
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
		}
	}
	v, err := reload.New(reload.Config[string]{
		List: list, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		Load: func() (string, error) {
			var names []string
			for _, path := range list()[1:] {
				names = append(names, filepath.Base(path))
			}
			return strings.Join(names, " "), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		change func(a, b string) error
		want   string
	}{
		{func(a, _ string) error { return os.WriteFile(a, nil, 0o600) }, "a"},
		{os.Rename, "b"},
		{func(a, _ string) error { return os.WriteFile(a, nil, 0o600) }, "a b"},
		{func(_, b string) error { return os.Remove(b) }, "a"},
		{func(a, _ string) error { return os.Remove(a) }, ""},
	} {
		if err := step.change(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
		age()
		now = now.Add(reload.Interval)
		if got := v.Get(); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}
