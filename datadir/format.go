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

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// Version is the newest format of data directories that this program writes. It reads all formats up to
// this one:
//
//	1  changes have no origin
//	2  changes have the time, the verb, the actor and the audit ID
//	3  there may be kept forks
const Version = 3

// A new directory has basicFormat, and an older one gets it when it is opened. It becomes Version with the first
// kept fork, so that programs that know no kept forks open it until then.
const basicFormat = 2

// formatHead begins the FORMAT file; a version in decimal and a newline follow.
const formatHead = "tidemark data directory, format "

// maxFormatBytes is more than any FORMAT file has.
const maxFormatBytes = 256

// ensureFormat checks the FORMAT file, or writes it into a new directory. It returns the format
// that the directory has. The log's directory is made first: where there is a FORMAT and no log, the
// log was lost, and a new one must not take its place.
func ensureFormat(dir string) (int, error) {
	path := filepath.Join(dir, formatFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := atomicfile.MakeDir(filepath.Join(dir, logDir)); err != nil {
			return 0, err
		}
		return basicFormat, writeFormat(dir, basicFormat)
	}
	if err != nil {
		return 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFormatBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	v, err := parseFormat(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if v > Version {
		return 0, fmt.Errorf("%s: the data directory has format %d, this program knows the formats up to %d: use the program that wrote it, or another directory", path, v, Version)
	}
	if _, err := os.Stat(filepath.Join(dir, logDir)); err != nil {
		return 0, fmt.Errorf("data directory %s has lost its log: %w", dir, err)
	}
	return v, nil
}

// writeFormat writes a FORMAT file.
func writeFormat(dir string, format int) error {
	return atomicfile.Write(filepath.Join(dir, formatFile), fmt.Appendf(nil, "%s%d\n", formatHead, format), 0o600)
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
