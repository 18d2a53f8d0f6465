package nethttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"unicode/utf8"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

const (
	// storeNamespace is where the entries of stores are. It exists in each cluster.
	storeNamespace = "kube-system"
	// storeLabel has the name of the store in each of its entries.
	storeLabel = "tidemarktest-store"
	// storeBytes limits a response; the server limits what an entry may hold.
	storeBytes = 64 << 20
)

// A Store holds the state of a fake of an external system, such as the volumes of a cloud. The state is a part of the cluster,
// so a search of tidemarktest works for the fake as for the cluster itself:
//
//   - Each copy of the cluster begins with the state of its moment. With EveryPrefix, the controller also crashes after
//     each write to the external system.
//   - With EveryFault, requests to the external system fail, and writes succeed although an error is returned. The fake
//     passes the errors of the Store on to the controller.
//   - SameEnd, Golden, Changes and the dump of a failed test include the state. The field manager of its changes is the
//     name of the Store.
//
// An entry is a ConfigMap in the namespace kube-system with the label tidemarktest-store. A Store does not lag behind, also
// for an Env of a Replica. It has all rights, also for an Env of As. The methods are safe for concurrent use; no method
// spans two requests, so a fake that reads before it writes needs a lock.
//
// A fake may have its state in memory and save all of it as one value. It must then load that value before each change: after
// an error of Put, the memory and the Store differ, and a fake that goes on with the memory has what its cluster lacks.
//
// A fake that makes up names should derive them from its state, for example from the number of entries: SameEnd takes
// random ones for a difference.
type Store struct {
	name, url string
	client    *http.Client
}

// NewStore returns the Store with a name in the cluster of an Env: a DNS label, such as "cloud". Two Stores with the same name
// in one cluster have the same entries.
func NewStore(env *tidemarktest.Env, name string) *Store {
	cluster := env.Cluster()
	return &Store{name, cluster.URL() + "/api/v1/namespaces/" + storeNamespace + "/configmaps", Client(cluster)}
}

// storeEntry is an entry as a ConfigMap.
type storeEntry struct {
	APIVersion string        `json:"apiVersion,omitempty"`
	Kind       string        `json:"kind,omitempty"`
	Metadata   storeMeta     `json:"metadata"`
	Data       storeKeyValue `json:"data"`
}

type storeMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

type storeKeyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Get returns the value of a key, and false if there is none.
func (s *Store) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	var e storeEntry
	switch err := s.do(ctx, "GET", "/"+s.object(key), nil, &e); {
	case isNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	return e.Data.Value, true, nil
}

// Put sets the value of a key. Both must be UTF-8: encode other bytes, for example with base64. A value has at most one megabyte.
// An error of the server does not say that nothing was written.
func (s *Store) Put(ctx context.Context, key, value string) error {
	if !utf8.ValidString(key) || !utf8.ValidString(value) {
		return fmt.Errorf("store %s: Put(%.100q): the key and the value must be UTF-8", s.name, key)
	}
	e := storeEntry{"v1", "ConfigMap", storeMeta{s.object(key), map[string]string{storeLabel: s.name}}, storeKeyValue{key, value}}
	return s.do(ctx, "PATCH", "/"+e.Metadata.Name+"?force=true&fieldManager="+url.QueryEscape(s.name), e, nil)
}

// Delete removes a key. It succeeds if there is none.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.do(ctx, "DELETE", "/"+s.object(key), nil, nil); !isNotFound(err) {
		return err
	}
	return nil
}

// List returns all keys with their values.
func (s *Store) List(ctx context.Context) (map[string]string, error) {
	var list struct{ Items []storeEntry }
	if err := s.do(ctx, "GET", "?labelSelector="+url.QueryEscape(storeLabel+"="+s.name), nil, &list); err != nil {
		return nil, err
	}
	all := make(map[string]string, len(list.Items))
	for _, e := range list.Items {
		all[e.Data.Key] = e.Data.Value
	}
	return all, nil
}

// objectKey matches keys that can be part of the name of an object: DNS labels with dots between them. None of them is a
// hash, which has 64 characters and no dot.
var objectKey = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

// objectKeyBytes limits a key that is part of a name of at most 253 bytes, behind a label of 63 and a dot.
const objectKeyBytes = 253 - 64

// object returns the name of the ConfigMap of a key.
func (s *Store) object(key string) string {
	if len(key) > objectKeyBytes || !objectKey.MatchString(key) {
		key = fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
	}
	return s.name + "." + key
}

// do sends a request and decodes the response into out, which may be nil. A response that is no success is a
// tidemarktest.StatusError.
func (s *Store) do(ctx context.Context, method, path string, body, out any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "tidemarktest-store/"+s.name)
	if body != nil {
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	response, err := s.client.Do(r)
	if err != nil {
		return fmt.Errorf("store %s: %w", s.name, err)
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, storeBytes))
	switch {
	case err != nil:
	case response.StatusCode/100 != 2:
		wrong := &tidemarktest.StatusError{Code: response.StatusCode}
		if json.Unmarshal(text, wrong) != nil || wrong.Message == "" {
			wrong.Message = response.Status
		}
		err = wrong
	case out != nil:
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return fmt.Errorf("store %s: %s: %w", s.name, method, err)
	}
	return nil
}

func isNotFound(err error) bool {
	var wrong *tidemarktest.StatusError
	return errors.As(err, &wrong) && wrong.Code == http.StatusNotFound
}
