package assets

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// IndexFile is the name of the index, as controller-tools names it.
const IndexFile = "envtest-releases.yaml"

// Release is an archive to write.
type Release struct {
	Files
	// Version is the version of Kubernetes: "v1.36.3".
	Version string
	// OS and Arch are those of the programs, as Go names them.
	OS, Arch string
	// URL is where the directory will be published.
	URL string
}

// index is the file that setup-envtest reads.
type index struct {
	// Releases are the archives by version and by name.
	Releases map[string]map[string]archive `json:"releases"`
}

type archive struct {
	Hash     string `json:"hash"` // SHA-512, in hexadecimal
	SelfLink string `json:"selfLink"`
}

// Archive writes an archive of the programs to a directory, which it creates, and adds it to the
// index there. It returns the path of the archive. Equal programs make equal archives.
func Archive(dir string, r Release) (path string, err error) {
	if err := os.MkdirAll(dir, programMode); err != nil {
		return "", err
	}
	name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", r.Version, r.OS, r.Arch)
	link, err := url.JoinPath(r.URL, name)
	if err != nil {
		return "", fmt.Errorf("the URL of the archives: %w", err)
	}
	all, err := readIndex(filepath.Join(dir, IndexFile))
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	sum := sha512.New()
	err = replace(path, func(temporary string) error {
		out, err := os.Create(temporary)
		if err != nil {
			return err
		}
		return errors.Join(pack(io.MultiWriter(out, sum), r.entries()), out.Close())
	})
	if err != nil {
		return "", err
	}
	if all.Releases[r.Version] == nil {
		all.Releases[r.Version] = map[string]archive{}
	}
	all.Releases[r.Version][name] = archive{Hash: hex.EncodeToString(sum.Sum(nil)), SelfLink: link}
	text, err := yaml.Marshal(all)
	if err != nil {
		return "", err
	}
	return path, atomicfile.Write(filepath.Join(dir, IndexFile), text, 0o644)
}

func readIndex(path string) (index, error) {
	all := index{Releases: map[string]map[string]archive{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	if err := yaml.UnmarshalStrict(b, &all); err != nil {
		return all, fmt.Errorf("%s is not an index of archives: %w", path, err)
	}
	if all.Releases == nil {
		all.Releases = map[string]map[string]archive{}
	}
	return all, nil
}

// pack writes the files. Readers ignore the directory in the names.
func pack(w io.Writer, all []entry) error {
	compressed := gzip.NewWriter(w)
	files := tar.NewWriter(compressed)
	for _, e := range all {
		if err := packFile(files, e); err != nil {
			return err
		}
	}
	return errors.Join(files.Close(), compressed.Close())
}

func packFile(files *tar.Writer, e entry) error {
	if e.text != "" {
		err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "controller-tools/envtest/" + e.name, Mode: programMode, Size: int64(len(e.text))})
		if err == nil {
			_, err = io.WriteString(files, e.text)
		}
		return err
	}
	in, err := os.Open(e.from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "controller-tools/envtest/" + e.name, Mode: programMode, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(files, in)
	return err
}
