package control

import (
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// resources writes the names of the resources that the world serves, as histories have them: "pods",
// "deployments.apps". Those of subresources are "pods/status", "deployments.apps/scale".
func (h *handler) resources(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	d, err := world.Describe()
	if err != nil {
		return err
	}
	c := &client{api: world.Handler(), token: d.Token}
	all, subresources := []string{}, []string{}
	for _, path := range []string{"/api", "/apis"} {
		var groups apidiscovery.APIGroupDiscoveryList
		if err := c.get(r.Context(), path, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &groups); err != nil {
			return err
		}
		for _, g := range groups.Items {
			for _, v := range g.Versions {
				for _, resource := range v.Resources {
					name := strings.TrimSuffix(resource.Resource+"."+g.Name, ".")
					all = append(all, name)
					for _, sub := range resource.Subresources {
						subresources = append(subresources, name+"/"+sub.Subresource)
					}
				}
			}
		}
	}
	slices.Sort(all)
	slices.Sort(subresources)
	writeJSON(w, http.StatusOK, map[string]any{"resources": slices.Compact(all), "subresources": slices.Compact(subresources)})
	return nil
}
