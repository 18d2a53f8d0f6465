package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// maxBytes limits all files of a directory together.
const maxBytes = 16 << 20

// file is a file that is not empty.
type file struct {
	path string
	data []byte
}

// isManifest reports whether a file of that name is read.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// readAll reads the files of a directory, in the order of their names.
func readAll(dir string) (files []file, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("failed to read manifest directory %q: %w", dir, err)
	}
	left := int64(maxBytes)
	for _, e := range entries {
		if e.IsDir() || !isManifest(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := read(path, left)
		if err != nil {
			return nil, fmt.Errorf("failed to read file %q: %w", path, err)
		}
		left -= int64(len(data))
		if len(data) > 0 {
			files = append(files, file{path, data})
		}
	}
	return files, nil
}

// read reads a regular file of at most left bytes. Opening anything else might wait.
func read(path string, left int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, left+1))
	if err == nil && int64(len(data)) > left {
		err = fmt.Errorf("the files of the directory are larger than %d bytes", maxBytes)
	}
	return data, err
}

// documents returns the YAML documents of a file that are not empty.
func (f *file) documents() (all [][]byte, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if doc = bytes.TrimSpace(doc); len(doc) > 0 {
			all = append(all, doc)
		}
	}
}
