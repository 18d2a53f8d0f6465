package changes

import (
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/internal/apply"
)

// The group of the API, and its resource.
const (
	Group      = "tidemark.dev"
	Version    = "v1"
	APIVersion = Group + "/" + Version
	Resource   = "changes"
	Kind       = "Change"
	ListKind   = "ChangeList"
	// Prefix is the path of the group's version below the address of a server.
	Prefix = "/apis/" + APIVersion
	// AtPrefix is the path below which a server serves the state of an instant.
	AtPrefix = "/at/"
)

// Headers of responses about instants.
const (
	// RevisionHeader and TimeHeader have the instant whose state the response shows.
	RevisionHeader = "Tidemark-Revision"
	TimeHeader     = "Tidemark-Time"
	// FirstHeader has the first revision that is left, in a response to a request for an earlier one.
	FirstHeader = "Tidemark-First"
)

// Keys of the field selector of a list of changes.
const (
	SelectResource    = "resource"
	SelectName        = "name"
	SelectUID         = "uid"
	SelectUser        = "user" // the user or the impersonator
	SelectVerb        = "verb"
	SelectSubresource = "subresource"
	SelectLoop        = "loop" // empty: not by the server itself
	SelectField       = "field"
	SelectSince       = "since" // a revision is exclusive, a time inclusive
	SelectUntil       = "until" // inclusive
	SelectOrder       = "order"

	NewestFirst = "newest" // the default
	OldestFirst = "oldest"
)

// Field is a field that a change set, changed or removed.
type Field = apply.Field

// Change is one change of one object.
type Change struct {
	Kind       string   `json:"kind,omitempty"`
	APIVersion string   `json:"apiVersion,omitempty"`
	Metadata   Metadata `json:"metadata"`

	Revision string    `json:"revision"`
	Time     time.Time `json:"time"` // the zero value if it is not known

	Verb        string `json:"verb,omitempty"` // create, update, patch, apply, delete, deletecollection
	Subresource string `json:"subresource,omitempty"`

	User           string `json:"user,omitempty"`
	ImpersonatedBy string `json:"impersonatedBy,omitempty"`
	UserAgent      string `json:"userAgent,omitempty"`
	FieldManager   string `json:"fieldManager,omitempty"`
	AuditID        string `json:"auditID,omitempty"`
	Loop           string `json:"loop,omitempty"` // the part of the server that made the change by itself

	Resource  string  `json:"resource"` // deployments.apps
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	UID       string  `json:"uid,omitempty"`
	Fields    []Field `json:"fields,omitempty"`
}

// Metadata is the metadata of a change, as other objects of the API have it. The name is the revision.
type Metadata struct {
	Name              string     `json:"name"`
	Namespace         string     `json:"namespace,omitempty"`
	ResourceVersion   string     `json:"resourceVersion,omitempty"`
	CreationTimestamp *time.Time `json:"creationTimestamp,omitempty"` // in whole seconds
}

// ChangeList is a list of changes.
type ChangeList struct {
	Kind       string       `json:"kind"`
	APIVersion string       `json:"apiVersion"`
	Metadata   ListMetadata `json:"metadata"`
	Items      []Change     `json:"items"`
}

// ListMetadata is the metadata of a list.
type ListMetadata struct {
	ResourceVersion    string `json:"resourceVersion,omitempty"`
	Continue           string `json:"continue,omitempty"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
}

// Complete sets the kind and the metadata of a change that has its other values.
func (c *Change) Complete() {
	c.Kind, c.APIVersion = Kind, APIVersion
	c.Time = c.Time.UTC()
	c.Metadata = Metadata{Name: c.Revision, Namespace: c.Namespace, ResourceVersion: c.Revision}
	if !c.Time.IsZero() {
		seconds := c.Time.Truncate(time.Second)
		c.Metadata.CreationTimestamp = &seconds
	}
}

// By returns who made a change, for people: the user, who acted for it, and the program.
func (c *Change) By() string {
	by := c.User
	if c.ImpersonatedBy != "" {
		by = c.ImpersonatedBy + " as " + by
	}
	via := program(c.UserAgent)
	if via == "" {
		via = c.FieldManager
	}
	switch {
	case by == "" && c.Loop != "":
		return "server (" + c.Loop + ")"
	case by == "":
		by = "unknown"
	}
	if via != "" {
		by += " via " + via
	}
	return by
}

// program returns the name of a program in a user agent.
func program(userAgent string) string {
	for i, c := range userAgent {
		if c == '/' || c == ' ' {
			return userAgent[:i]
		}
	}
	return userAgent
}

// After reports whether the change is newer than a revision.
func (c *Change) After(revision uint64) bool {
	n, err := strconv.ParseUint(c.Revision, 10, 64)
	return err == nil && n > revision
}

// Creates reports whether the object began to exist with the change.
func (c *Change) Creates() bool {
	return c.identity(func(f *Field) bool { return f.From == nil && f.To != nil })
}

// Deletes reports whether the object ceased to exist with the change.
func (c *Change) Deletes() bool {
	return c.identity(func(f *Field) bool { return f.From != nil && f.To == nil })
}

// Word describes what happened to the object as a whole: created, deleted, deletion began; empty: none of these.
func (c *Change) Word() string {
	switch {
	case c.Creates():
		return "created"
	case c.Deletes():
		return "deleted"
	}
	for i := range c.Fields {
		if f := &c.Fields[i]; f.Path == deletionTime && f.From == nil {
			return "deletion began"
		}
	}
	return ""
}

const deletionTime = "metadata.deletionTimestamp"

// Shown returns the fields that a table shows beside Word.
func (c *Change) Shown() []Field {
	if c.Word() != "deletion began" {
		return c.Fields
	}
	shown := make([]Field, 0, len(c.Fields))
	for _, f := range c.Fields {
		if f.Path != deletionTime && f.Path != "metadata.deletionGracePeriodSeconds" {
			shown = append(shown, f)
		}
	}
	return shown
}

// identity returns the result of is for the field with the uid of the object, false if the change has no such field.
func (c *Change) identity(is func(*Field) bool) bool {
	for i := range c.Fields {
		switch f := &c.Fields[i]; f.Path {
		case "metadata.uid", "metadata", "":
			return is(f)
		}
	}
	return false
}

// Confidential reports whether tables do not show the value of a field: the data of Secrets, and annotations of theirs, which
// may repeat it.
func Confidential(resource, path string) bool {
	if resource != "secrets" {
		return false
	}
	for _, of := range []string{"data", "stringData", "metadata.annotations"} {
		if rest, ok := strings.CutPrefix(path, of); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return path == ""
}

// Difference is the difference of one object between two states.
type Difference struct {
	Resource  string  `json:"resource"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	Fields    []Field `json:"fields"`
}
