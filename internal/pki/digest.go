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

// Damage of some files is not visible in their content: a token with a flipped bit is another
// valid token. Such a file has a second file with its digest, in the format of sha256sum. The
// digest is written first, and the old digest is kept, so that after a crash between the two
// writes the file matches one of them.

// digestSuffix is the suffix of the digest's file.
const digestSuffix = ".sha256"

// keepDigests is the number of lines: for the new content and for the old one.
const keepDigests = 2

func digestLine(name string, content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]) + "  " + name
}

// readChecked reads a file and compares it with its digest. checked is false if there is none:
// the file is of an older version of the server, or an administrator has put it there.
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

// digests returns the lines of the digest's file, nil if there is none.
func digests(dir, name string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name+digestSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n"), err
}

// writeDigest adds the digest of content, before or after the content is written.
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
