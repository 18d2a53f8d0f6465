// Package eventlimit is the admission plugin EventRateLimit. It limits the rate of writes of Events
// for the whole server, for each namespace, for each user, or for each source and object. As in
// kube-apiserver, requests of the group events.k8s.io are not limited.
package eventlimit

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Limits are the limits of a configuration.
type Limits []Limit

// Limit is one limit. Each bucket starts with Burst writes, and gets QPS more in a second.
type Limit struct {
	// Type is Server, Namespace, User or SourceAndObject: which writes share a bucket.
	Type string `json:"type"`
	// QPS is how many writes a second are allowed in the long run. Burst is how many are
	// allowed at once.
	QPS   int32 `json:"qps"`
	Burst int32 `json:"burst"`
	// CacheSize is how many buckets are kept; zero: 4096. The one that was not used for the
	// longest time is dropped first, and starts again with Burst.
	CacheSize int32 `json:"cacheSize"`
}

const defaultCacheSize = 4096

// keys return which bucket a write takes from.
var keys = map[string]func(a *registry.Attributes) string{
	"Server":    func(*registry.Attributes) string { return "" },
	"Namespace": func(a *registry.Attributes) string { return a.Namespace },
	"User": func(a *registry.Attributes) string {
		if a.User == nil {
			return ""
		}
		return a.User.Name
	},
	"SourceAndObject": func(a *registry.Attributes) string {
		e, ok := a.Object.(*corev1.Event)
		if !ok {
			return ""
		}
		o := &e.InvolvedObject
		return strings.Join([]string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
	},
}

// configuration is a Configuration of eventratelimit.admission.k8s.io/v1alpha1.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Limits          Limits `json:"limits"`
}

// DeepCopyObject implements runtime.Object. The copy shares the limits.
func (c *configuration) DeepCopyObject() runtime.Object { copied := *c; return &copied }

// Parse reads a configuration: a Configuration of eventratelimit.admission.k8s.io/v1alpha1, as
// YAML or JSON. Nil is one without limits, which is an error: the plugin needs limits.
func Parse(text []byte) (Limits, error) {
	c := &configuration{}
	if text != nil {
		kind := schema.GroupVersionKind{Group: "eventratelimit.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"}
		read, err := pluginconfig.Decode(text, pluginconfig.Kind{GroupVersionKind: kind, Object: c})
		if err != nil {
			return nil, err
		}
		c = read.(*configuration)
	}
	return c.Limits, c.Limits.validate().ToAggregate()
}

func (all Limits) validate() (errs field.ErrorList) {
	path := field.NewPath("limits")
	if len(all) == 0 {
		errs = append(errs, field.Invalid(path, all, "must not be empty"))
	}
	for i, l := range all {
		at := path.Index(i)
		if keys[l.Type] == nil {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, []string{"Namespace", "User", "SourceAndObject", "Server"}))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != "Server" && l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs
}

// Plugin returns the plugin. Now is the clock; nil: time.Now.
func Plugin(limits Limits, now func() time.Time) registry.Plugin {
	if now == nil {
		now = time.Now
	}
	all := make([]*buckets, len(limits))
	for i, l := range limits {
		all[i] = newBuckets(l)
	}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Type.Collection == "events" && t.Type.Group == "" && t.Subresource == "" && o != admissionv1.Delete
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			if a.DryRun {
				return nil
			}
			var errs []error
			for i, l := range limits { // a write counts for each limit, even if one rejects it
				if key := keys[l.Type](a); !all[i].take(key, now()) {
					errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", l.Type, key))
				}
			}
			if err := utilerrors.NewAggregate(errs); err != nil {
				return apierrors.NewTooManyRequestsError(err.Error())
			}
			return nil
		},
	}
}
