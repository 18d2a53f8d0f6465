package replication

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// CheckObjects checks that the values of a transaction are objects, as the store of a server holds them: each has the
// name and the namespace of its key, and the place of its resource version. The caller checks
// their other fields.
func CheckObjects(t *store.Txn) error {
	for i := range t.Writes {
		if w := &t.Writes[i]; w.Value != nil {
			if err := checkValue(w); err != nil {
				return fmt.Errorf("write %d, of %s %q: %w", i, w.Collection, w.Key, err)
			}
		}
	}
	return nil
}

func checkValue(w *store.Write) error {
	const digit = "7"
	text := make([]byte, 0, len(w.Value)+len(digit))
	text = append(append(append(text, w.Value[:w.RevisionAt]...), digit...), w.Value[w.RevisionAt:]...)
	var o struct {
		Metadata struct {
			Name            string `json:"name"`
			Namespace       string `json:"namespace"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &o, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("the value is no object: %w", err)
	}
	m := &o.Metadata
	key := m.Name
	if m.Namespace != "" {
		key = m.Namespace + "/" + m.Name
	}
	switch {
	case m.Name == "" || strings.Contains(m.Name, "/") || strings.Contains(m.Namespace, "/"):
		return errors.New("the value has no name that is one")
	case key != w.Key:
		return fmt.Errorf("the value is that of %q", key)
	case m.ResourceVersion != digit:
		return errors.New("the resource version is not where the write has it")
	}
	return nil
}
