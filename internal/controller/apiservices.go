package controller

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	extension "github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// apiServices keeps the APIServices of custom resources: one for each group and version that definitions serve. It restores
// those that were changed or deleted, and deletes those that are no longer needed. An APIService without its label is the
// administrator's and stays as it is.
//
// kube-apiserver itself does this, so the loop cannot be switched off.
type apiServices struct{ follower }

func newAPIServices(l *Loops, q *queue) loop {
	return &apiServices{follower{l: l, queue: q, collection: extension.Collection}}
}

func (a *apiServices) begin(s *store.State) {
	a.follower.begin(s)
	for _, g := range a.l.c.Catalog().Groups() {
		for _, v := range g.Versions {
			if v.Types[0].Custom != nil {
				a.add(v.Name + "." + g.Name)
			}
		}
	}
}

func (a *apiServices) observe(c *store.CollectionChange) {
	switch c.Collection {
	case extension.Collection:
		a.add(c.Key())
	case crd.Collection:
		a.addVersions(c.Before)
		a.addVersions(c.After)
	}
}

// addVersions queues the APIServices of the versions of a definition.
func (a *apiServices) addVersions(o *store.Object) {
	if o == nil {
		return
	}
	var d struct {
		Spec struct {
			Group    string
			Versions []struct{ Name string }
		}
	}
	if json.Unmarshal(o.Bytes(), &d) != nil {
		return
	}
	for _, v := range d.Spec.Versions {
		a.add(v.Name + "." + d.Spec.Group)
	}
}

func (a *apiServices) sync(ctx context.Context, i item) error {
	version, group, _ := strings.Cut(i.key, ".")
	o := a.l.store.Any().Get(extension.Collection, i.key)
	wanted := a.custom(group, version)
	if o == nil {
		if !wanted {
			return nil
		}
		return a.register(ctx, i.key, group, version)
	}
	s, err := registry.Decode[apiregistrationv1.APIService](o)
	if err != nil || s.DeletionTimestamp != nil {
		return err
	}
	if s.Labels[extension.Managed] == extension.Always {
		if !wanted {
			err := a.l.remove(ctx, i.object, o, metav1.DeletePropagationBackground)
			if apierrors.IsConflict(err) {
				return nil // the change queues it again
			}
			return err
		}
		if want := localSpec(group, version); !sameService(&s.Spec, &want) {
			return a.edit(ctx, i.object, "", func(s *apiregistrationv1.APIService) bool {
				changed := s.Labels[extension.Managed] == extension.Always && !sameService(&s.Spec, &want)
				s.Spec = want
				return changed
			})
		}
	}
	return a.edit(ctx, i.object, "status", func(s *apiregistrationv1.APIService) bool { return extension.SetLocal(s, a.l.now()) })
}

// custom reports whether definitions serve a version, and the server itself does not.
func (a *apiServices) custom(group, version string) bool {
	v := a.l.c.Catalog().Lists(group, version)
	if v == nil {
		return false
	}
	for _, t := range v.Types {
		if t.Custom == nil {
			return false
		}
	}
	return true
}

func localSpec(group, version string) apiregistrationv1.APIServiceSpec {
	return apiregistrationv1.APIServiceSpec{
		Group: group, Version: version, GroupPriorityMinimum: extension.CustomGroupPriority, VersionPriority: extension.CustomVersionPriority,
	}
}

func sameService(a, b *apiregistrationv1.APIServiceSpec) bool {
	return a.Service == nil && a.Group == b.Group && a.Version == b.Version && a.GroupPriorityMinimum == b.GroupPriorityMinimum &&
		a.VersionPriority == b.VersionPriority && !a.InsecureSkipTLSVerify && len(a.CABundle) == 0
}

// register creates the APIService of a version.
func (a *apiServices) register(ctx context.Context, name, group, version string) error {
	t, ok := a.l.served().target(object{extension.Collection, name})
	if !ok {
		return nil
	}
	made := apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{Kind: "APIService", APIVersion: apiregistrationv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(managedAlways)}, Spec: localSpec(group, version),
	}
	body, err := json.Marshal(&made)
	if err != nil {
		return err
	}
	t.Name = ""
	_, err = a.l.c.Registry.Create(ctx, t, registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: registry.ServerManager})
	if apierrors.IsAlreadyExists(err) {
		return nil // the change queues it
	}
	return err
}

var managedAlways = map[string]string{extension.Managed: extension.Always}

// edit changes an APIService, unless change returns false.
func (a *apiServices) edit(ctx context.Context, o object, subresource string, change func(*apiregistrationv1.APIService) bool) error {
	return a.l.editAs(ctx, registry.ServerManager, o, subresource, func(m metav1.Object) error {
		if !change(m.(*apiregistrationv1.APIService)) {
			return errLeave
		}
		return nil
	})
}
