package pki

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// A file whose damage nothing else shows has its digest beside it, in the form of
// sha256sum: a token with a flipped bit is another valid token. The digest is
// written first, and keeps that of the content before: a crash between the two leaves a
// file that matches one of them.

// digestSuffix makes the name of the digest's file.
const digestSuffix = ".sha256"

// keepDigests is how many lines there are: of the new content and of the one before.
const keepDigests = 2

func digestLine(name string, content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]) + "  " + name
}

// readChecked reads a file and compares it with its digest. A file without one is of an
// older version, or was put there by hand: checked is false.
func readChecked(dir, name string) (content []byte, checked bool, err error) {
	path := filepath.Join(dir, name)
	if content, err = os.ReadFile(path); err != nil {
		return nil, false, err
	}
	lines, err := digests(dir, name)
	if err != nil || lines == nil {
		return content, false, err
	}
	if !slices.Contains(lines, digestLine(name, content)) {
		return nil, false, fmt.Errorf("%s is damaged, or was changed: its SHA-256 is not in %s; if it was changed on purpose, delete that", path, path+digestSuffix)
	}
	return content, true, nil
}

// digests are the lines of a digest's file; nil: there is none.
func digests(dir, name string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name+digestSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n"), err
}

// writeDigest records content that is there or will be.
func writeDigest(dir, name string, content []byte) error {
	line := digestLine(name, content)
	lines, err := digests(dir, name)
	if err != nil || slices.Contains(lines, line) {
		return err
	}
	lines = slices.Insert(lines, 0, line)
	text := strings.Join(lines[:min(keepDigests, len(lines))], "\n") + "\n"
	return atomicfile.Write(filepath.Join(dir, name+digestSuffix), []byte(text), 0o600)
}

// writeChecked writes a file and its digest.
func writeChecked(dir, name string, content []byte) error {
	if err := writeDigest(dir, name, content); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, name), content, 0o600)
}
