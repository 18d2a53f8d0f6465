package satoken

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/reload"
)

const (
	keyFile = "serviceaccount.pem"
	// forksFile has the key that signs the tokens of forks. No other program trusts it.
	forksFile = "forks.pem"
	keyBits   = 2048
	pemType   = "RSA PRIVATE KEY"
)

// keyring holds keys of the same origin. It is immutable.
type keyring struct {
	// signer signs; nil: the keys only verify.
	signer *key
	// verify are the keys that verify, the signer among them. Their IDs differ.
	verify []*key
}

// ring returns the keyring of the keys; the first signs, if it can.
func ring(all []*key) *keyring {
	r := new(keyring)
	for _, k := range all {
		if !slices.ContainsFunc(r.verify, func(other *key) bool { return other.id == k.id }) {
			r.verify = append(r.verify, k)
		}
	}
	if len(all) > 0 && all[0].private != nil {
		r.signer = all[0]
	}
	return r
}

// given returns the keys of the files that the configuration names, nil if it names none. They change
// when the files change.
func (a *Authority) given() *keyring {
	if a.files == nil {
		return nil
	}
	return a.files.Get()
}

// verifiers yields the keys that a token with this key ID may be signed with. All keys may have signed
// a token without a key ID. It does not wait for a key that is being made.
func (a *Authority) verifiers(id string) (all []*key) {
	rings := []*keyring{a.own.Load(), a.given()}
	if a.world() != "" {
		rings = append(rings, a.forks.Load())
	}
	for _, r := range rings {
		if r == nil {
			continue
		}
		for _, k := range r.verify {
			if k.id == id || id == "" && !slices.ContainsFunc(all, func(other *key) bool { return other.id == k.id }) {
				all = append(all, k)
			}
		}
	}
	return all
}

// signer returns the key that signs. In a fork, that is the key of forks. Otherwise it is the first
// of the configuration's file, or else the server's own. A missing key is made.
func (a *Authority) signer() (*key, error) {
	if a.world() != "" {
		return a.make(&a.forks, forksFile, func() (*key, error) {
			private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return nil, err
			}
			return newKey(private.Public(), private)
		})
	}
	if given := a.given(); given != nil && given.signer != nil {
		return given.signer, nil
	}
	return a.make(&a.own, keyFile, func() (*key, error) {
		private, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			return nil, err
		}
		return newKey(private.Public(), private)
	})
}

// make returns the first key of a ring, and makes it if there is none. A key that cannot be written is not used: its
// tokens would end with the process.
func (a *Authority) make(held *atomic.Pointer[keyring], file string, generate func() (*key, error)) (*key, error) {
	if all := held.Load(); all != nil {
		return all.signer, nil
	}
	a.making.Lock()
	defer a.making.Unlock()
	if all := held.Load(); all != nil { // meanwhile
		return all.signer, nil
	}
	k, err := generate()
	if err != nil {
		return nil, err
	}
	if a.c.Dir != "" {
		text, err := k.pem()
		if err != nil {
			return nil, err
		}
		if err := atomicfile.MakeDir(a.c.Dir); err != nil {
			return nil, err
		}
		if err := atomicfile.Write(filepath.Join(a.c.Dir, file), text, 0o600); err != nil {
			return nil, fmt.Errorf("the key of service account tokens cannot be kept: %w", err)
		}
	}
	held.Store(ring([]*key{k}))
	return k, nil
}

// readOwn reads the keys of a file in a directory; nil if there is none.
func readOwn(dir, file string) (*keyring, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, file)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(b)
	if err == nil && slices.ContainsFunc(keys, func(k *key) bool { return k.private == nil }) {
		err = errors.New("it holds a key without its private half")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; put the keys of service account tokens back, or delete the file: then all tokens have to be asked for again", path, err)
	}
	return ring(keys), nil
}

// openFiles reads the key files of the configuration, and reads them again when they change.
func (a *Authority) openFiles() error {
	c := &a.c
	if c.SigningKeyFile == "" && len(c.KeyFiles) == 0 {
		return nil
	}
	files := slices.Clone(c.KeyFiles)
	if c.SigningKeyFile != "" {
		files = append([]string{c.SigningKeyFile}, files...)
	}
	var err error
	a.files, err = reload.New(reload.Config[*keyring]{
		Files: files, Load: func() (*keyring, error) { return readFiles(c.SigningKeyFile, c.KeyFiles) }, Now: c.Now, Log: c.Log,
	})
	return err
}

// readFiles reads the key that signs, if there is a file of it, and those that verify. Without files
// of the latter, the first verifies.
func readFiles(signing string, files []string) (*keyring, error) {
	var all []*key
	if signing != "" {
		keys, err := readFile(signing)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(keys, func(k *key) bool { return k.private != nil })
		if i < 0 {
			return nil, fmt.Errorf("%s: it holds no private key", signing)
		}
		all = append(all, keys[i])
	}
	for _, file := range files {
		keys, err := readFile(file)
		if err != nil {
			return nil, err
		}
		for _, k := range keys { // these only verify
			public := *k
			public.private = nil
			all = append(all, &public)
		}
	}
	return ring(all), nil
}

func readFile(path string) ([]*key, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}
