package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Version is the format of data directories that this program writes, and the
// only one that it reads.
const Version = 1

// formatHead begins the FORMAT file; a version in decimal and a newline follow.
const formatHead = "tidemark data directory, format "

// maxFormatBytes is more than any FORMAT file has.
const maxFormatBytes = 256

// ensureFormat checks the FORMAT file, or writes it into a new directory. The
// log's directory is made first: where there is a FORMAT and no log, the log was
// lost, and a new one must not take its place.
func ensureFormat(dir string) error {
	path := filepath.Join(dir, formatFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Join(dir, logDir), 0o700); err != nil {
			return err
		}
		return writeFormat(dir)
	}
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFormatBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	v, err := parseFormat(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if v != Version {
		return fmt.Errorf("%s: the data directory has format %d, this program knows format %d alone: use the program that wrote it, or another directory", path, v, Version)
	}
	if _, err := os.Stat(filepath.Join(dir, logDir)); err != nil {
		return fmt.Errorf("data directory %s has lost its log: %w", dir, err)
	}
	return nil
}

// parseFormat reads a FORMAT file.
func parseFormat(b []byte) (int, error) {
	s, ok := strings.CutPrefix(string(b), formatHead)
	if !ok {
		return 0, fmt.Errorf("it does not begin with %q: not a data directory, or damaged", formatHead)
	}
	s, ok = strings.CutSuffix(s, "\n")
	v, err := strconv.ParseUint(s, 10, 31)
	if !ok || err != nil || v == 0 || strconv.FormatUint(v, 10) != s {
		return 0, fmt.Errorf("%q is no format version and a newline", s)
	}
	return int(v), nil
}

// writeFormat writes the file beside its place, syncs and renames it: a
// directory with a FORMAT has a whole one.
func writeFormat(dir string) error {
	path := filepath.Join(dir, formatFile)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%d\n", formatHead, Version)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(dir)
}
