package datadir

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// A backup is a tar archive of the files of a data directory. The first entry describes the backup, the last one has
// the checksums of all others, so that a backup that was cut off is recognized. docs/formats/backup.md has the format.
const (
	aboutEntry = "BACKUP"
	sumsEntry  = "SHA256SUMS"

	// BackupVersion is the format of the backups that this program writes, and the newest one that it reads.
	BackupVersion = 1

	maxAboutBytes = 1 << 20
	// maxEntries bounds the entries of an archive: a log of 8 MiB tables has so many at 8 TiB.
	maxEntries = 1 << 20
)

// Contents describes a data directory or a backup.
type Contents struct {
	// Format is the format of the backup; zero for a directory.
	Format int `json:"format,omitempty"`
	// Created is when the backup was made; zero for a directory.
	Created time.Time `json:"created,omitzero"`
	// Log is the server's own state.
	Log LogContents `json:"log"`
	// Forks are the kept forks by name.
	Forks map[string]LogContents `json:"forks,omitempty"`
	// Skipped are the kept forks that could not be opened, with the reasons.
	Skipped map[string]string `json:"skippedForks,omitempty"`
}

// LogContents describes a log.
type LogContents struct {
	// ResourceVersion is the newest one, OldestResourceVersion the oldest one that can be read back.
	ResourceVersion       uint64 `json:"resourceVersion"`
	OldestResourceVersion uint64 `json:"oldestResourceVersion"`
	// Objects is the number of current objects.
	Objects uint64 `json:"objects"`
	// Changed is the time of the newest change; zero: it is not known.
	Changed time.Time `json:"changed,omitzero"`
}

var errNoBackup = errors.New("it is not a backup of Tidemark, or is compressed")

// archivePath matches the names of entries that a backup may have, other than the first and the last one.
var archivePath = regexp.MustCompile(`^(?:FORMAT|kubeconfig|pki/[^/]+|(?:forks/[a-z0-9][a-z0-9-]{0,62}/)?(?:fork\.json|log/HEAD|log/pebble/[^/]+))$`)

// archived reports whether a backup may have an entry of that name. Such a name stays in the directory.
func archived(name string) bool {
	return archivePath.MatchString(name) && !strings.ContainsAny(name, "\\:\x00\n") && !strings.HasSuffix(name, "/..") && !strings.HasSuffix(name, "/.")
}

// archiveWriter writes a backup.
type archiveWriter struct {
	tar  *tar.Writer
	time time.Time
	sums bytes.Buffer
	buf  []byte
}

// add writes an entry.
func (a *archiveWriter) add(name string, size int64, content io.Reader) error {
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: a.time, Format: tar.FormatPAX}); err != nil {
		return err
	}
	h := sha256.New()
	if a.buf == nil {
		a.buf = make([]byte, 256<<10)
	}
	n, err := io.CopyBuffer(io.MultiWriter(a.tar, h), io.LimitReader(content, size), a.buf)
	if err == nil && n != size {
		err = fmt.Errorf("%s became shorter: %d of %d bytes", name, n, size)
	}
	fmt.Fprintf(&a.sums, "%x  %s\n", h.Sum(nil), name)
	return err
}

// end writes the checksums and the end of the archive.
func (a *archiveWriter) end() error {
	sums := bytes.Clone(a.sums.Bytes())
	return errors.Join(a.add(sumsEntry, int64(len(sums)), bytes.NewReader(sums)), a.tar.Close())
}

// readArchive reads a whole backup, and calls file for each file of the data directory. It returns an error if the
// backup is not complete or differs from its checksums; file has had the content then.
func readArchive(ctx context.Context, r io.Reader, file func(name string, content io.Reader) error) (about Contents, err error) {
	r = &contextReader{ctx, r}
	t := tar.NewReader(r)
	sums := map[string]string{}
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return about, err
		}
		h, err := t.Next()
		switch {
		case ctx.Err() != nil:
			return about, ctx.Err()
		case n == 0 && (err != nil || h.Name != aboutEntry || h.Typeflag != tar.TypeReg):
			return about, errNoBackup
		case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
			return about, fmt.Errorf("the backup is cut off: it has no %s", sumsEntry)
		case err != nil:
			return about, fmt.Errorf("the backup is damaged or cut off: %w", err)
		case n > maxEntries:
			return about, fmt.Errorf("the backup has more than %d files", maxEntries)
		case h.Typeflag != tar.TypeReg:
			return about, fmt.Errorf("the backup has %q, which is not a regular file", h.Name)
		}
		sum := sha256.New()
		content := io.TeeReader(t, sum)
		switch {
		case n == 0:
			if about, err = readAbout(content); err != nil {
				return about, err
			}
		case h.Name == sumsEntry:
			return about, finish(t, r, sums, h.Size)
		case !archived(h.Name):
			return about, fmt.Errorf("the backup has a file %q, which no data directory has", h.Name)
		case sums[h.Name] != "":
			return about, fmt.Errorf("the backup has the file %s twice", h.Name)
		default:
			if err := file(h.Name, content); err != nil {
				return about, cutOff(err)
			}
			if _, err := io.Copy(io.Discard, content); err != nil {
				return about, cutOff(err)
			}
		}
		sums[h.Name] = hex.EncodeToString(sum.Sum(nil))
	}
}

func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the backup is cut off")
	}
	return err
}

func readAbout(r io.Reader) (about Contents, err error) {
	b, err := io.ReadAll(io.LimitReader(r, maxAboutBytes))
	if err != nil {
		return about, cutOff(err)
	}
	if err := json.Unmarshal(b, &about); err != nil {
		return about, fmt.Errorf("%s of the backup: %w", aboutEntry, err)
	}
	if about.Format < 1 || about.Format > BackupVersion {
		return about, fmt.Errorf("the backup has format %d, this program knows the formats up to %d: use the program that wrote it", about.Format, BackupVersion)
	}
	return about, nil
}

// finish compares the checksums with the last entry, and reads the end of the archive.
func finish(t *tar.Reader, r io.Reader, sums map[string]string, size int64) error {
	b, err := io.ReadAll(io.LimitReader(t, min(size, maxEntries*512)))
	if err != nil {
		return cutOff(err)
	}
	for line := range strings.Lines(string(b)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		got, ok := sums[name]
		switch {
		case !ok:
			return fmt.Errorf("the backup lacks the file %q", name)
		case got != sum:
			return fmt.Errorf("the backup is damaged: %s differs from its checksum", name)
		}
		delete(sums, name)
	}
	for name := range sums {
		return fmt.Errorf("the backup is damaged: there is no checksum of %s", name)
	}
	_, err = t.Next()
	if err != io.EOF {
		return cmp.Or(err, fmt.Errorf("the backup goes on after %s", sumsEntry))
	}
	_, err = io.Copy(io.Discard, r) // the padding
	return err
}

// contextReader reads until a context is done, so that an entry of many bytes does not go on after that.
type contextReader struct {
	ctx context.Context //nolint:containedctx // of one call, like the reader
	r   io.Reader
}

// Read implements io.Reader.
func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// contextWriter is contextReader for a writer.
type contextWriter struct {
	ctx context.Context //nolint:containedctx // of one call, like the writer
	w   io.Writer
}

// Write implements io.Writer.
func (c *contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}
