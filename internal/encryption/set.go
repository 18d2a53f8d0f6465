package encryption

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

// encryptedPrefix begins each encrypted value. Objects begin with a brace.
const encryptedPrefix = "k8s:enc:"

func isEncrypted(value []byte) bool { return bytes.HasPrefix(value, []byte(encryptedPrefix)) }

// anything is the wildcard of all resources of all groups.
var anything = schema.GroupResource{Group: "*", Resource: "*"}

// Config has the path of a configuration.
type Config struct {
	// Path is that of the file; empty: nothing is encrypted, and nothing that is can be read.
	Path string
	// Now measures durations, and is the time of reloads; nil: time.Now, whose durations do not
	// change when the wall clock jumps.
	Now func() time.Time
	// Log receives the events of KMS plugins and reloads; nil: nothing is logged.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Set is a configuration in effect. It is safe for concurrent use. Close releases it.
type Set struct {
	path  string
	hash  string
	rules map[schema.GroupResource]*rule
	kms   []*kms
}

// Load reads and validates a configuration, and starts to follow its KMS plugins. It does not
// wait for them.
func Load(c Config) (*Set, error) {
	c = c.withDefaults()
	if c.Path == "" {
		return &Set{}, nil
	}
	data, err := readConfig(c.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return newSet(c, data)
}

func newSet(c Config, data []byte) (*Set, error) {
	parsed, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	s := &Set{path: c.Path, hash: hashOf(data), rules: map[schema.GroupResource]*rule{}}
	if err := s.build(c, parsed); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return s, nil
}

func hashOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func (s *Set) build(c Config, parsed *apiserver.EncryptionConfiguration) error {
	for _, r := range parsed.Resources {
		ways, err := s.ways(c, r.Providers)
		if err != nil {
			return err
		}
		for _, name := range r.Resources {
			gr := schema.ParseGroupResource(name)
			for _, wildcard := range []schema.GroupResource{{Group: gr.Group, Resource: "*"}, anything} {
				if s.rules[wildcard] != nil {
					return fmt.Errorf("resource %q is masked by earlier rule %q", shown(gr), shown(wildcard))
				}
			}
			if s.rules[gr] == nil {
				s.rules[gr] = new(rule)
			}
			s.rules[gr].ways = append(s.rules[gr].ways, ways...)
		}
	}
	return nil
}

// shown is a resource as configurations have it.
func shown(gr schema.GroupResource) string {
	if gr.Group == "" && gr.Resource == "*" {
		return "*."
	}
	return gr.String()
}

// ways returns the methods of a list of providers, one for each key.
func (s *Set) ways(c Config, providers []apiserver.ProviderConfiguration) (all []way, err error) {
	for i := range providers {
		p := &providers[i]
		switch {
		case p.KMS != nil:
			k, err := newKMS(c, p.KMS)
			if err != nil {
				return nil, err
			}
			s.kms = append(s.kms, k)
			all = append(all, way{prefix: encryptedPrefix + "kms:v2:" + p.KMS.Name + ":", method: k})
			continue
		case p.AESGCM != nil:
			all, err = addKeys(all, "aesgcm", "AES", p.AESGCM.Keys, func(key []byte) (method, error) { return newGCM(key) })
		case p.AESCBC != nil:
			all, err = addKeys(all, "aescbc", "AES", p.AESCBC.Keys, func(key []byte) (method, error) { return newCBC(key) })
		case p.Secretbox != nil:
			all, err = addKeys(all, "secretbox", "Secretbox", p.Secretbox.Keys, func(key []byte) (method, error) { return &box{key: [32]byte(key)}, nil })
		default:
			all = append(all, way{method: identity{}})
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addKeys adds the methods of the keys of a provider. The keys have been validated.
func addKeys(all []way, name, shown string, keys []apiserver.Key, make func([]byte) (method, error)) ([]way, error) {
	provider := encryptedPrefix + name + ":v1:"
	for _, k := range keys {
		key, err := base64.StdEncoding.DecodeString(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("the key %s of the provider %s is not base64", k.Name, name)
		}
		m, err := make(key)
		if err != nil {
			return nil, fmt.Errorf("the key %s of the provider %s: %w", k.Name, name, err)
		}
		all = append(all, way{prefix: provider + k.Name + ":", method: m})
	}
	last := &all[len(all)-1] // there is a key
	last.provider, last.unknown = provider, fmt.Errorf("no matching key was found for the provided %s transformer", shown)
	return all, nil
}

// Close stops the tracking of the KMS plugins, and ends running calls.
func (s *Set) Close() {
	for _, k := range s.kms {
		k.close()
	}
}

// Empty reports whether there is no configuration: all values are plain.
func (s *Set) Empty() bool { return len(s.rules) == 0 }

// rule returns the rule of a collection, nil if there is none: its values are plain.
func (s *Set) rule(collection string) *rule {
	if len(s.rules) == 0 {
		return nil
	}
	r, _ := lookup(s.rules, collection)
	return r
}

// lookup returns the value for a collection by the names of rules.
func lookup[V any](rules map[schema.GroupResource]V, collection string) (v V, found bool) {
	gr := schema.ParseGroupResource(collection)
	if v, found = rules[gr]; found {
		return v, true
	}
	if v, found = rules[schema.GroupResource{Group: gr.Group, Resource: "*"}]; found {
		return v, true
	}
	v, found = rules[anything]
	return v, found
}

// open decrypts a stored value of a collection.
func (s *Set) open(ctx context.Context, collection string, encrypted, place []byte) ([]byte, error) {
	if r := s.rule(collection); r != nil {
		value, _, err := r.open(ctx, encrypted, place)
		return value, err
	}
	return identity{}.open(ctx, encrypted, place)
}

// way is a method with the prefix of its values.
type way struct {
	prefix string // empty: identity
	method method
	// At the last key of a provider, provider is the part of the prefix that all of its keys
	// have, and unknown the error of a value with another key.
	provider string
	unknown  error
}

// rule is the methods of a resource. The first one encrypts.
type rule struct{ ways []way }

var errNoPrefix = errors.New("no matching prefix found")

// encrypt encrypts a value.
func (r *rule) encrypt(value, place []byte) ([]byte, error) {
	w := &r.ways[0]
	if w.prefix == "" {
		return value, nil
	}
	const most = 2 << 10 // bytes that methods add, except for long KMS annotations
	dst := make([]byte, 0, len(w.prefix)+len(value)+most/8)
	return w.method.encrypt(append(dst, w.prefix...), value, place)
}

// open decrypts a value, and returns the index of the way that succeeded. Several keys may have
// one name: each is tried.
func (r *rule) open(ctx context.Context, encrypted, place []byte) ([]byte, int, error) {
	var errs []error
	known := false // the provider at hand has the key
	for i := range r.ways {
		w := &r.ways[i]
		if rest, found := bytes.CutPrefix(encrypted, []byte(w.prefix)); found {
			known = true
			value, err := w.method.open(ctx, rest, place)
			if err == nil {
				return value, i, nil
			}
			if w.prefix != "" {
				errs = append(errs, err)
			}
		}
		if w.unknown == nil {
			continue
		}
		if !known && bytes.HasPrefix(encrypted, []byte(w.provider)) {
			errs = append(errs, w.unknown)
		}
		known = false
	}
	if err := utilerrors.Reduce(utilerrors.NewAggregate(errs)); err != nil {
		return nil, 0, err
	}
	return nil, 0, errNoPrefix
}

// outdated reports whether encrypt would encrypt a stored value in another way. A value that cannot
// be opened is outdated, except one of the first KMS plugin, which is not called for it.
func (r *rule) outdated(encrypted, place []byte) bool {
	w := &r.ways[0]
	rest, found := bytes.CutPrefix(encrypted, []byte(w.prefix))
	if !found {
		return true
	}
	if _, remote := w.method.(*kms); remote {
		return !w.method.current(rest)
	}
	_, i, err := r.open(context.Background(), encrypted, place)
	return err != nil || i != 0
}

// ready returns why the rule cannot encrypt at present, or nil.
func (r *rule) ready() error { return r.ways[0].method.ready() }

// describe names the provider and the key that a value was encrypted with, as its prefix has
// them: `aescbc, key "key1"`.
func describe(encrypted []byte) string {
	const most = 256 // bytes, of names too
	rest, found := strings.CutPrefix(string(encrypted[:min(len(encrypted), most)]), encryptedPrefix)
	if !found {
		return "identity"
	}
	parts := strings.SplitN(rest, ":", 4)
	if len(parts) < 4 {
		return "an unknown provider"
	}
	if parts[0] == "kms" {
		return fmt.Sprintf("the KMS plugin %q (%s)", parts[2], parts[1])
	}
	return fmt.Sprintf("%s, key %q", parts[0], parts[2])
}
